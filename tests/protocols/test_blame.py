"""Blame for a stalled run: it falls on the party at fault or on no party."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from tests.protocols.test_served import played

import veilring as vr
from veilring.errors import SessionAborted
from veilring.nodes.adversary import Alter, Delay, Drop, Forger, Reorder, Repeat, Silent, Substitute
from veilring.nodes.party import Blame, Standing, Wait, find_fault
from veilring.nodes.run import blamed_party
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.masks import MaskedTotals, MaskedWords
from veilring.protocols.ranksearch.adversaries import AskTwice, WrongCounts
from veilring.protocols.ranksearch.memory import SearchedRows
from veilring.protocols.ranksearch.shared import Shares
from veilring.protocols.ring.adversaries import ADVERSARIES, Equivocate

pytestmark = pytest.mark.slow

NAMES: Final = tuple(f"party-{n}" for n in range(5))
LIMIT_SECONDS: Final = 60.0  # simulated
KNN: Final = partial(vr.PrivateKNN, k=3, rounds=3)
SYSTEMS: Final[Mapping[str, vr.System]] = {
    "ring": KNN(sum="ring"),
    "cycles": KNN(sum="cycles", cycles=2),
    "shares": KNN(sum="shares"),
    "masks": KNN(sum="masks"),
    "search": vr.RankSearch(k=3),
    "search by one that adds up": vr.RankSearch(k=3, sum="star"),
    "search by shares": vr.RankSearch(k=3, reveal="votes"),
    "search for labels alone": vr.RankSearch(k=3, reveal="label"),
    "votes": vr.NoisyVotes(radius=0.5),
    "votes on a ring": vr.NoisyVotes(radius=0.5, sum="ring"),
}
in_all_systems = pytest.mark.parametrize("name", SYSTEMS)
in_all_searches = pytest.mark.parametrize("name", [name for name in SYSTEMS if "search" in name])


async def run(name: str, runtime: vr.Simulated, **given: Any) -> vr.Run[object]:
    """Run a system in which party-0 asks, and each party holds a few rows."""
    rng = np.random.default_rng(1)
    parts = {each: vr.Rows(rng.random((4, 2)), rng.integers(0, 2, 4)) for each in NAMES}
    setup = SYSTEMS[name].setup(parts, vr.Facts(len(NAMES), 2, 2))
    queries = np.random.default_rng(2).random((4, 2))
    return await played(setup, queries, runtime=runtime, **given)


def failure(
    name: str,
    adversaries: Mapping[str, vr.Adversary],
    *faults: vr.Fault,
    seconds: float | None = LIMIT_SECONDS,
    latency: float = 0.0,
) -> vr.RunFailed | None:
    """Return the error that ends a run on the simulated clock, if any."""
    links = vr.Topology(vr.LinkModel(latency=vr.Constant(latency))) if latency else None
    given = {"adversaries": adversaries, "seconds": seconds}
    try:
        vr.simulate(run(name, vr.Simulated(links, faults), **given))
    except vr.RunFailed as error:
        return error
    return None


def blamed(name: str, lie: vr.Adversary, seconds: float | None = LIMIT_SECONDS) -> list[str | None]:
    """Return whom the parties blame as each one tells a lie; none if they notice nothing.

    No honest party is blamed, and a blamed party is named in the error.
    """
    found = list[str | None]()
    for faulty in NAMES:
        error = failure(name, {faulty: lie}, seconds=seconds)
        found.append(None if error is None else blamed_party(error))
        assert found[-1] in {None, faulty, ""}, (lie, str(error))
        assert not found[-1] or faulty in str(error)
    return found


@in_all_systems
def test_a_silent_party_is_named_at_any_position(name: str) -> None:
    """A party that is silent from any round on is named if its messages are missed."""
    rounds = (0, 1, 2, 7, 12, 16, 19)
    found = [each for first in rounds for each in blamed(name, Silent(first_round=first), None)]
    assert "" not in found
    assert sum(map(bool, found)) >= 2 * len(NAMES)  # from round 0 and 1 on, each of them


@pytest.mark.parametrize("seconds", [None, LIMIT_SECONDS])
@in_all_systems
def test_a_party_that_withholds_one_kind_of_message_never_convicts_another(
    name: str, seconds: float | None
) -> None:
    """With or without a time limit, no honest party is blamed for a withheld message."""
    views = vr.simulate(run(name, vr.Simulated(), watch=NAMES)).views.values()
    kinds = {type(seen.message) for view in views for seen in view.sent}
    found = [each for kind in kinds for each in blamed(name, Drop((kind,)), seconds)]
    assert sum(map(bool, found)) >= 2 * len(NAMES)


@in_all_systems
def test_a_party_that_sends_other_messages_never_convicts_another(name: str) -> None:
    """A party that repeats, swaps, forges or invents messages is named, or no party is."""
    kinds = (SYSTEMS[name].adversaries() or ADVERSARIES).values()
    liars = [make() for make in kinds if make not in {Silent, Equivocate, AskTwice}]
    two_tongues = (Equivocate("party-2"), AskTwice("party-2"), WrongCounts(victim="party-2"))
    for lie in (*liars, *two_tongues, Repeat(), Reorder(), Forger("party-2"), Drop(first=1)):
        blamed(name, lie)


@in_all_searches
def test_a_party_that_sends_another_hash_is_among_those_named(name: str) -> None:
    """In the first sum, it or the client is at fault: no other party has sent anything before.

    If the client adds up, each concludes that only its peer can be at fault.
    """
    other = {"digest": bytes(DIGEST_BYTES)}
    sums = (MaskedWords, MaskedTotals, Shares)
    lie = Alter(lambda message: message.model_copy(update=other), only=sums)
    for faulty in NAMES:
        error = failure(name, {faulty: lie})
        assert error is not None
        found = [e for n, e in error.errors.items() if n != faulty]
        violations = {e.culprit for e in found if isinstance(e, vr.ProtocolViolation)}
        tampered = [set(e.suspects) for e in found if isinstance(e, vr.Tampered)]
        assert violations or tampered
        assert violations <= {faulty}
        assert all({faulty} <= suspects <= {faulty, "party-0"} for suspects in tampered)
        assert not (tampered and "adds up" in name)


@in_all_searches
def test_a_party_that_aborts_is_reported_without_blame(name: str) -> None:
    """Rows of another schema end the run of their party, which tells all others."""
    wrong = Substitute(SearchedRows(vr.Rows(np.zeros((1, 7)), np.zeros(1, int))))
    for faulty in NAMES:
        error = failure(name, {faulty: wrong}, seconds=None)
        assert error is not None
        assert isinstance(error.root, vr.InputError)
        assert blamed_party(error) == ""
        for told in (e for n, e in error.errors.items() if n != faulty):
            assert isinstance(told, SessionAborted)
            assert (told.by, told.reason, told.culprit) == (faulty, "InputError", "")


@in_all_systems
def test_a_slow_party_or_link_is_not_blamed(name: str) -> None:
    """If time runs out while an honest party or a link is slow, no party is named."""
    for victim, other in pairwise(NAMES):
        slow = vr.Fault("slow", 0.0, 1e6, (victim,), strength=400.0)
        stall = vr.Fault("stall", 0.0, 1e6, (victim, other))
        pause = vr.Fault("pause", 0.35, 1e6, (victim,))
        for fault in (slow, stall, pause):
            error = failure(name, {}, fault, latency=0.1)
            assert error is None or not blamed_party(error), (fault, str(error))
            assert error is None or "nobody can be blamed" in str(error)
        late = failure(name, {victim: Delay(1.5 * LIMIT_SECONDS)})
        assert late is not None
        assert blamed_party(late) in {victim, ""}


@in_all_systems
def test_a_party_that_crashed_is_named(name: str) -> None:
    """Every remaining party names a crashed party at any position."""
    for victim in NAMES:
        crash = vr.Fault("crash", 0.35, np.inf, (victim,))
        error = failure(name, {}, crash, seconds=None, latency=0.1)
        assert error is not None
        assert blamed_party(error) == victim


def at(name: str, waits: str = "", due: int | None = 0, **more: Any) -> Standing:
    """Return the report of a party that waits for a message of another one, if of any."""
    return Standing(name, (Wait(waits, "x", due),) if waits else (), **more)


def test_the_earliest_missing_message_decides() -> None:
    """In a circle of waiting parties its sender is at fault; a judge trusts what it has seen."""
    circle = [
        at("ada", "bob", 5, sent={"cyd": 2}),
        at("bob", "cyd", 4, sent={"ada": 1}, received={"cyd": 1}),
        at("cyd", "ada", 6, sent={"bob": 1}, received={"ada": 2}),
    ]
    said = "cyd did not send x to bob when it was due"
    assert find_fault(circle) == Blame("cyd", said)
    assert find_fault(reversed(circle)).culprit == "cyd"
    assert find_fault([at("ada", "bob", None), at("bob", over=True)]).culprit == "bob"
    equal = [at("ada", "bob", 5), at("bob", "cyd", 6), at("cyd", "bob", 5)]
    for judge in ("ada", "cyd"):
        said = f"bob did not send x to {judge} when it was due"
        assert find_fault(equal, judge=judge) == Blame("bob", said)


ADA = at("ada", "bob", 5)


@pytest.mark.parametrize(
    ("standings", "why"),
    [
        ([ADA, at("bob")], "ada is waiting for x from bob, which is computing"),
        ([ADA, at("bob", blocked=("cyd",))], "bob is waiting for cyd to read"),
        ([ADA], "which did not report"),
        ([at("ada"), at("bob")], "still computing: ada, bob"),
        (
            [at("ada", "bob", None), at("bob", "ada", 1)],
            "the order of the missing messages is unknown",
        ),
    ],
)
def test_without_proof_no_party_is_blamed(standings: list[Standing], why: str) -> None:
    """Messages in progress or unknown convict no party, and the error names them."""
    verdict = find_fault(standings)
    assert verdict.culprit == ""
    assert verdict.sentence.startswith("nobody can be blamed: ")
    assert why in verdict.sentence
