"""The duration of a batch: its longest chain of messages."""

import numpy as np
import pytest
from tests.protocols.ring.worlds import bound

from veilring import simulation
from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.nodes.cluster import Cluster
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.ring import KNNAnswer, KNNParameters, SumMethod, private_knn
from veilring.protocols.ring.cost import Chain, knn_chain
from veilring.simulation import Constant, LinkModel, Topology


@pytest.mark.parametrize("k", [1, 6], ids=["small-result", "large-result"])
@pytest.mark.parametrize("bandwidth", [np.inf, 2_000.0])
@pytest.mark.parametrize("parties", [3, 9])
def test_a_batch_takes_the_time_of_its_longest_chain(
    parties: int, bandwidth: float, k: int
) -> None:
    """With equal links the simulated seconds are the chain's, up to rounding."""
    parameters = bound(3, 3, k=k, rounds=3)
    chain = knn_chain(parties, 4, parameters)
    run = _simulated(parties, parameters, bandwidth)
    assert run.cost.rounds == chain.rounds
    assert run.seconds == pytest.approx(chain.seconds(1.0, bandwidth), rel=1e-12)


def test_a_chain_adds_latencies_and_bytes() -> None:
    """Seconds are rounds times latency plus bytes over bandwidth."""
    assert Chain(rounds=7, bytes=100).seconds(0.5, 50.0) == 5.5
    with pytest.raises(InputError, match=r"sum is 'shares'"):
        knn_chain(5, 1, bound(1, 1, SumMethod("shares")))


def _simulated(parties: int, parameters: KNNParameters, bandwidth: float) -> Run[KNNAnswer]:
    order = Ring([f"party-{n}" for n in range(parties)])
    rng = np.random.default_rng(6)

    async def main() -> Run[KNNAnswer]:
        link = LinkModel(latency=Constant(1.0), bandwidth_bytes_per_second=bandwidth)
        runtime = Simulated(Topology(link))
        own = [Rows(rng.random((1, 3)), rng.integers(0, 3, 1)) for _ in range(parties)]
        async with Cluster(order.order, runtime=runtime, own=own, seed=0) as cluster:
            only = {order.starter: {"queries": rng.random((4, 3))}}
            return await cluster.run(
                private_knn, only=only, client=order.starter, parameters=parameters, ring=order
            )

    return simulation.simulate(main())
