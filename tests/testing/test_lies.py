"""Audits of lies: each adversary at each message, and the endings of honest parties."""

from collections.abc import Mapping

import numpy as np
import pytest
from benchmarks.auditing import ring_lies
from docs.examples.class_counts import class_counts
from docs.examples.secure_maximum import Number, is_greatest
from numpy.typing import NDArray
from tests.testing.exploring.test_exploring import maximum

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.adversary import Silent, Substitute
from veilring.nodes.party import Party, broadcast
from veilring.scenarios import load_scenario
from veilring.testing.exploring import SystemSubject
from veilring.testing.lies import Lies, Verdict, audit_lies, audit_system

COUNTS = [np.array(c, np.uint64) for c in ([5, 0, 1], [2, 2, 2], [0, 9, 0], [1, 1, 4])]


async def checked_maximum(party: Party, own: int) -> int:
    """Send the party's number and then the received ones to all, which detects contradictions."""
    party.round(1)
    await broadcast(party, Number(number=own))
    told = {peer: (await party.receive(Number, sender=peer)).number for peer in party.peers}
    party.round(2)
    found = max(own, *told.values())
    await broadcast(party, Number(number=found))
    for peer in party.peers:
        if (await party.receive(Number, sender=peer)).number != found:
            raise ProtocolViolation(peer, "found another number")
    return found


def verdicts(lies: Lies, adversary: str) -> set[Verdict]:
    """Return the verdicts on all lies of an adversary."""
    return {lie.verdict for lie in lies.rows if lie.adversary == adversary}


def test_all_lies_in_class_counts_have_a_verdict() -> None:
    """Four parties, 18 messages, nine lies: altered words pass, as the role has no checks."""
    lies = audit_lies(class_counts, COUNTS)
    assert len(lies) == 18 * 9
    assert lies.count(Verdict.MISNAMED) == lies.count(Verdict.UNNAMED) == 0
    assert verdicts(lies, "alter words") == {Verdict.UNNOTICED}
    assert verdicts(lies, "delay") == {Verdict.UNCHANGED}
    assert verdicts(lies, "lengthen words") == {Verdict.CULPRIT}
    with pytest.raises(AssertionError, match="alter words by party-0 of message 0"):
        lies.assert_none(Verdict.UNNOTICED)
    assert "wrong result unnoticed" in str(lies)


def test_a_wrong_accusation_is_reported() -> None:
    """A role that blames every sender of another number is reported for blaming honest parties."""
    lies = audit_lies(checked_maximum, [3, 1, 4], invariant=is_greatest)
    assert lies.count(Verdict.MISNAMED) > 0
    with pytest.raises(AssertionError, match="found another number"):
        lies.assert_none(Verdict.MISNAMED)
    assert len(lies.about(Number.kind)) == len(lies)


def test_the_draw_of_a_ring_names_no_honest_party() -> None:
    """A party that sends different commitments in a draw is always among the parties named."""
    lies = ring_lies()
    lies.assert_none(Verdict.MISNAMED, Verdict.UNNOTICED, Verdict.UNNAMED)
    assert lies.count(Verdict.SUSPECTS) > 0


def test_custom_adversaries_act_in_the_whole_run() -> None:
    """Custom adversaries act in the whole run, at each position, for no single message."""
    own = {"claims nine": Substitute(9), "is silent": Silent()}
    lies = audit_lies(maximum, [3, 1, 4], adversaries=own)
    silent = [lie for lie in lies.rows if lie.adversary == "is silent"]
    assert [(lie.party, lie.message, lie.place) for lie in silent] == [
        (f"party-{n}", "", -1) for n in range(3)
    ]
    assert {lie.verdict for lie in silent} <= {Verdict.CULPRIT, Verdict.HANG}
    assert verdicts(lies, "claims nine") == {Verdict.UNNOTICED}


@pytest.mark.slow
def test_a_system_is_audited_with_its_own_adversaries() -> None:
    """Rank search names the liar in a masked sum, or a set that contains it."""
    settings = ["parties.count=3", "data.queries=1", "protocol.name=rank-search"]
    lies = audit_system(SystemSubject(load_scenario("faults", settings)))
    lies.assert_none(Verdict.UNNOTICED, Verdict.MISNAMED)
    assert {"wrong-counts", "replayer"} <= {lie.adversary for lie in lies.rows}


def test_a_run_that_fails_without_a_lie_is_not_audited() -> None:
    """A run that fails without any lie is refused, because it cannot show the effect of one."""

    def wrong(_inputs: Mapping[str, int], _results: Mapping[str, int]) -> None:
        raise AssertionError("nothing is right")

    with pytest.raises(InputError, match="nothing is right"):
        audit_lies(maximum, [1, 2, 3], invariant=wrong)


def test_results_of_all_shapes_are_compared() -> None:
    """Arrays and tuples of arrays are compared: a lie that changes one entry is seen."""

    async def pair(party: Party, own: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], str]:
        return await class_counts(party, own), "counts"

    lies = audit_lies(pair, COUNTS[:3])
    assert verdicts(lies, "alter words") == {Verdict.UNNOTICED}
    assert verdicts(lies, "delay") == {Verdict.UNCHANGED}
