"""Crashes of a party in a surviving sum: every single one, and many random ones."""

from collections.abc import Callable, Mapping
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from tests.protocols.dropout_worlds import ending, endings, play

from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.party import Party
from veilring.protocols.dropouts import SurvivingSums
from veilring.protocols.seeding import Quorum, share_seeds
from veilring.reached import sometimes

FOUR: dict[str, Any] = {"tolerated": 1, "lost": 1, "own": [[1], [10], [100], [1000]]}
SEEDS, VECTORS = 3, 3  # messages of seeds and of words that a party of four sends
HELD, DEALERS, SET = 1, 3, 3  # its report, and the messages of the coordinator


@pytest.mark.parametrize("coordinator", ["party-0", "party-2"])
@pytest.mark.parametrize("star", [False, True])
def test_every_crash_of_one_party(star: bool, coordinator: str) -> None:
    """A crash before any message, in set-up too, leaves a sum over the included parties.

    Without the coordinator the sum completes once three others have the set, unless it is a star;
    otherwise the error of each party names it, and no party has disclosed a share, or only to it.
    """
    for victim in range(4):
        name, at = f"party-{victim}", 0
        while True:
            world = play(4, crashes={name: at}, coordinator=coordinator, star=star, **FOUR)
            how = ending(world)
            if not world.crashed:  # it has no more to send
                break
            if name != coordinator:
                is_in = at >= SEEDS + HELD + (1 if star else VECTORS)
                assert how == ("stood" if is_in else "stood without some")
            elif not star:
                has_named = at >= SEEDS + DEALERS + VECTORS + SET
                assert how == ("stood" if has_named else "failed")
            errors = [out.error for out in world.survivors.values() if out.error is not None]
            assert {blamed(error) for error in errors} <= {coordinator}
            assert how != "failed" or len(errors) == 3
            assert star or how != "failed" or not any(world.told(each) for each in world.parties)
            at += 1
        assert how == "stood"
        assert at >= SEEDS + HELD + 3


def blamed(error: BaseException | None) -> str:
    """Return the party named by an error about a lost party."""
    assert isinstance(error, PeerLost | SessionAborted)
    return error.peer if isinstance(error, PeerLost) else error.culprit


def test_crashes_of_two_parties_where_one_may_be_lost() -> None:
    """The invariants hold for crashes before each pair of every third message."""
    found = {
        ending(
            play(
                4,
                crashes={f"party-{one}": at, f"party-{other}": then},
                coordinator="party-0",
                star=False,
                **FOUR,
            )
        )
        for one, other in combinations(range(4), 2)
        for at, then in product(range(1, 16, 4), repeat=2)
    }
    assert "failed" in found


@pytest.mark.slow
def test_random_worlds_of_twelve_parties() -> None:
    """Up to four crash in 200 worlds, over links that reorder messages: sums stand or fail."""
    found = endings(200, seed=1)
    assert sum(found.values()) == 200
    assert found["all-to-all", "stood without some"] > 20
    assert found["all-to-all", "failed"] > 5
    assert found["star", "stood"] > 5


Found = tuple[int, tuple[str, ...]]


async def sum_with_marks(party: Party, own: int) -> Found:
    """Add up one number, with one party fewer if necessary."""
    quorum = Quorum(len(party.parties), 1, 1)
    seeds = await share_seeds(party, quorum, party.parties[0], silence=1.0)
    sums = SurvivingSums(party, seeds, silence=1.0)
    (total,) = await sums.add([np.array([own], np.uint64)])
    sometimes("a sum stands without a party", len(sums.parties_in) < len(party.parties))
    sometimes("a sum stands with all parties", len(sums.parties_in) == len(party.parties))
    return int(total[0]), sums.parties_in


def is_sum(inputs: Mapping[str, int], results: Mapping[str, Found]) -> None:
    """Require equal totals over the included parties, at all parties with a result."""
    assert len(set(results.values())) <= 1
    for total, members in results.values():
        assert len(members) >= len(inputs) - 1
        assert total == sum(inputs[name] for name in members)


@pytest.mark.slow
def test_no_fault_breaks_a_sum(explore: Callable[..., object]) -> None:
    """Faults are crashes, restarts, partitions, half-open links, slow parties and clock skew."""
    explore(sum_with_marks, [1, 10, 100, 1_000, 10_000], invariant=is_sum, seeds=30, least=4)
