"""Malicious parties of the secure sum, which has no knowledge of its values."""

import numpy as np
import pytest
from tests.protocols.ring.adversaries.hands import (
    METHODS,
    NAMES,
    RING,
    STARTER,
    accusations,
    is_among,
)

from veilring.errors import RunFailed
from veilring.nodes.adversary import Reorder
from veilring.nodes.cluster import Cluster
from veilring.protocols.ring import FixedPoint, SumMethod, secure_sum
from veilring.protocols.ring.adversaries import Equivocate, WrongSum
from veilring.testing import ProtocolRunner


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_wrong_sum_alone_is_never_detected(
    run_protocol: ProtocolRunner, method: SumMethod
) -> None:
    """The secure sum does not know its values, so the total is off by the added amount."""
    run = run_protocol(
        secure_sum,
        NAMES,
        own=[np.ones((2, 3)) for _ in NAMES],
        ring=RING,
        fixed=FixedPoint(24, 5),
        method=method,
        adversaries={"party-4": WrongSum(-0.5, entry=1)},
    )
    honest = [total for name, total in run.results.items() if name != "party-4"]
    for total in honest:
        np.testing.assert_array_equal(total, [[5.0, 4.5, 5.0]] * 2)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_a_sum_can_differ_from_party_to_party(method: SumMethod) -> None:
    """A starter can send a victim another total; with shares or masks, each party can."""
    liar = STARTER if method.goes_round else "party-1"
    async with Cluster(NAMES, own=[np.ones((1, 2)) for _ in NAMES], seed=5) as cluster:
        run = await cluster.run(
            secure_sum,
            ring=RING,
            fixed=FixedPoint(24, 5),
            method=method,
            adversaries={liar: Equivocate("party-4", by=7)},
        )
    assert run.results.pop("party-4").tolist() == [[12.0, 12.0]]
    assert all(total.tolist() == [[5.0, 5.0]] for total in run.results.values())


async def test_shares_in_another_order_name_their_sender() -> None:
    """A partial sum before a share is unexpected."""
    async with Cluster(NAMES, own=[np.ones((1, 2)) for _ in NAMES], seed=5) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(
                secure_sum,
                ring=RING,
                fixed=FixedPoint(24, 5),
                method=SumMethod("shares"),
                adversaries={"party-1": Reorder()},
            )
    assert all(is_among("party-1", error) for error in accusations(caught.value, "party-1"))
    assert accusations(caught.value, "party-1")
