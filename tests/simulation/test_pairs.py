"""A simulation computes once what both parties of a pair compute alike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilring import simulation
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.runtimes import Simulated
from veilring.nodes.runtimes.simulated import Compute
from veilring.nodes.runtimes.tasks import Memory, Runtime
from veilring.pairs import of_pair
from veilring.protocols.masks import agree_secrets


async def compute_alike(_: Party, *, computed: Counter[int], sizes: Sequence[int]) -> None:
    """Compute a value of each size."""

    def compute(size: int) -> bytes:
        computed[size] += 1
        return bytes(size)

    for size in sizes:
        assert of_pair(("value", size), partial(compute, size)) == bytes(size)


def _computed(runtime: Runtime, parties: int, *sizes: int) -> list[int]:
    computed = Counter[int]()

    async def main() -> None:
        async with Cluster(parties, runtime=runtime, seed=0) as cluster:
            await cluster.run(compute_alike, computed=computed, sizes=sizes)

    simulation.simulate(main())
    return [computed[size] for size in sizes]


def test_the_second_party_takes_the_value_of_the_first() -> None:
    """Two simulated parties compute a value once, three twice, and a large one each time."""
    assert _computed(Simulated(), 2, 32, 4096, 4097) == [1, 1, 2]
    assert _computed(Simulated(), 3, 32) == [2]


@pytest.mark.parametrize("compute", [0.5, "measured"])
def test_measured_computation_is_not_shared(compute: Compute) -> None:
    """Each party computes for itself if its time is measured, as on a machine of its own."""
    expected = 2 if compute == "measured" else 1
    assert _computed(Simulated(compute=compute), 2, 32) == [expected]


def test_values_that_nobody_takes_are_few() -> None:
    """After 4,096 of them all are forgotten, which costs the second party its computation."""
    sizes = range(4097)
    assert sum(_computed(Simulated(), 2, *sizes)) == 2 * len(sizes)


def test_nothing_is_shared_outside_the_simulation() -> None:
    """Parties in memory compute for themselves: each could be alone in its process."""
    assert _computed(Memory(), 2, 32) == [2]


async def agree(party: Party) -> Mapping[str, bytes]:
    """Return the secrets with all peers."""
    return await agree_secrets(party)


def test_the_secret_of_two_keys_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four simulated parties derive six secrets, one for each pair."""
    derived = Counter[str]()

    def derive(*given: Any) -> HKDF:
        derived["secrets"] += 1
        return HKDF(*given)

    monkeypatch.setattr("veilring.protocols.masks.HKDF", derive)

    async def main() -> Mapping[str, Mapping[str, bytes]]:
        async with Cluster("abcd", runtime=Simulated(), seed=0) as cluster:
            return (await cluster.run(agree)).results

    secrets = simulation.simulate(main())
    pairs = [(one, other) for one in secrets for other in secrets[one]]
    assert all(secrets[one][other] == secrets[other][one] for one, other in pairs)
    assert len({secrets[one][other] for one, other in pairs}) == derived["secrets"] == 6
