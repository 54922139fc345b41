"""Malicious parties of rank search: their gains, the checks they fail, and the parties named."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.dropout_worlds import Lie
from tests.protocols.ranksearch.worlds import NAMES, QUERIES, label, options, ready, set_up
from tests.protocols.ring.worlds import accusations, accused, is_among
from typing_extensions import override

from veilring import simulation
from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import (
    AskedBefore,
    InputError,
    ProtocolViolation,
    RunFailed,
    Tampered,
    VeilringError,
)
from veilring.nodes.adversary import Adversary, Alter, Lines
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.run import Outcome, Run
from veilring.nodes.runtimes import Simulated
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.masks import MaskedTotals, PairwiseKeys
from veilring.protocols.ranksearch import shared
from veilring.protocols.ranksearch.adversaries import (
    AskTwice,
    MadeUpTotals,
    Replayer,
    TakeOver,
    UnevenCounts,
    WrongCounts,
    WrongVotes,
    read_totals,
)
from veilring.protocols.ranksearch.algorithm.search import Spacing, clipped_counts, first_cuts
from veilring.protocols.ranksearch.algorithm.shares import Elements, Scheme, zero_sums
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.roles import SearchAnswer
from veilring.protocols.ranksearch.shared import Checks, CheckWords, Commitment, Shares
from veilring.protocols.ranksearch.system import SearchSetup
from veilring.protocols.ring.adversaries import InputSubstitution
from veilring.simulation import LinkModel, LogNormal, Topology
from veilring.transport.messages import Message

FIVE = tuple(f"party-{n}" for n in range(5))
SUMS = ("all-to-all", "star")
CLIENT, OTHER, VICTIM, LIAR = *FIVE[:2], FIVE[3], NAMES[-1]
HONEST = NAMES[:-1]
WEIGHTS = ("uniform", "distance")
EVERYWHERE = [(adding, liar) for adding in SUMS for liar in (CLIENT, OTHER)]
WAYS = [*((adding, "totals") for adding in SUMS), ("all-to-all", "votes"), ("all-to-all", "label")]
K = 5

RNG = np.random.default_rng(20)
MANY = RNG.random((40, 3))
five_parties = partial(
    ready, [Rows(RNG.random((30, 3)), RNG.integers(0, 3, 30)) for _ in FIVE], k=K
)


def play(
    setup: SearchSetup,
    queries: Floats = QUERIES,
    liars: Mapping[str, Adversary] | None = None,
    *,
    links: Topology | None = None,
    own: tuple[object, ...] = (),
) -> dict[str, Outcome]:
    """Return the outcome of each party on the simulated clock, with its view."""
    names = tuple(setup.parts)

    async def main() -> list[Outcome]:
        runtime, asked = Simulated(links or Topology()), options(setup, names, queries)
        async with Cluster(names, runtime=runtime, own=own or setup.resident, seed=3) as cluster:
            return await cluster.play(setup.role, adversaries=liars or {}, watch=names, **asked)

    return {outcome.party: outcome for outcome in simulation.simulate(main())}


def honest_labels(run: Run[SearchAnswer], liar: str) -> Ints:
    """Return the labels of all parties except the liar, shape (parties, queries)."""
    return np.stack([answer.labels for name, answer in run.results.items() if name != liar])


def one_more(message: MaskedTotals) -> Message:
    """Report one row too many within each radius that contains at least k."""
    totals, *votes = message.words
    if votes:
        return message
    more = totals + ((totals >= K) & (totals < len(FIVE) * (K + 1)))
    return MaskedTotals(digest=message.digest, words=(more.astype(totals.dtype),))


@pytest.mark.slow
class TestLies:
    """Lies that are detected, and lies that are not."""

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    @pytest.mark.parametrize(
        ("lie", "weights", "decides"),
        [
            *((TakeOver(by=K, entry=2), weights, True) for weights in WEIGHTS),
            # A row at distance 0 decides weighted votes alone; otherwise it has one vote of k.
            *((TakeOver(by=1, entry=2), weights, weights == "distance") for weights in WEIGHTS),
            # Rows of another class, or no rows, are a valid input.
            *((lie, "uniform", False) for lie in (InputSubstitution(label=1), WrongCounts(by=0))),
        ],
        ids=repr,
    )
    async def test_a_lie_about_its_own_rows_is_never_detected(
        self, adding: str, liar: str, lie: Adversary, weights: str, *, decides: bool
    ) -> None:
        """False rows decide some labels, or all if k of them are at distance 0 from each query."""
        setup = five_parties(sum=adding, weights=weights)
        labels = honest_labels(await label(setup, {liar: lie}, MANY), liar)
        assert (labels == (2 if decides else labels[0])).all()
        assert decides or 0.5 < np.mean(labels == setup.reference(MANY)) < 1.0

    @pytest.mark.parametrize(
        ("adding", "liar", "lie", "weights"),
        [
            *(
                (adding, liar, lie, weights)
                for adding, liar in EVERYWHERE
                for lie, weights in (
                    (WrongCounts(by=3), "uniform"),  # the corresponding votes are missing
                    (WrongCounts(by=K + 2), "uniform"),  # more than a party can count
                    (UnevenCounts(), "uniform"),  # the totals fall
                    (WrongVotes(entry=1), "uniform"),  # more than the rows found
                    (WrongVotes(entry=1), "distance"),  # a row at distance 0 too many
                )
            ),
            *((adding, OTHER, Replayer(), "uniform") for adding in SUMS),  # noise
            # The remainder falls where a party's own count rises.
            *(("star", CLIENT, MadeUpTotals(factor), "uniform") for factor in (0.0, 0.5, 0.9)),
        ],
    )
    async def test_results_that_no_rows_explain_are_detected(
        self, adding: str, liar: str, lie: Adversary, weights: str
    ) -> None:
        """Honest parties notice them, and each accusation includes the liar."""
        await accused(liar, label(five_parties(sum=adding, weights=weights), {liar: lie}, MANY))

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    async def test_moved_votes_are_detected_only_by_a_party_that_misses_its_own(
        self, adding: str, liar: str
    ) -> None:
        """No other check keeps a party from moving another party's vote."""
        setup, lie = five_parties(sum=adding), WrongVotes(entry=1, taken=0)
        await accused(liar, label(setup, {liar: lie}, MANY))
        kept, turned = 0, 0
        for query, expected in zip(MANY[:, None], setup.reference(MANY), strict=True):
            try:
                run = await label(setup, {liar: lie}, query)
            except RunFailed:
                continue
            kept += 1
            turned += (honest_labels(run, liar) != expected).any()
        assert 0 < turned < kept < len(MANY)

    @pytest.mark.parametrize(
        ("adding", "liar", "lie", "kind"),
        [
            # A victim of two different totals has a different hash, and names their sender.
            ("star", CLIENT, Lie(MaskedTotals, one_more, (VICTIM,)), ProtocolViolation),
            *(
                (adding, liar, lie, VeilringError)
                for adding, liar in (("all-to-all", OTHER), ("star", CLIENT))
                for lie in (WrongCounts(victim=VICTIM), WrongVotes(2, 1, 0, VICTIM))
            ),
        ],
    )
    async def test_a_different_total_for_a_victim_is_detected(
        self, adding: str, liar: str, lie: Adversary, kind: type[VeilringError]
    ) -> None:
        """The exchange of checks confirms all totals, so no query ends with two labels."""
        setup, noticed = five_parties(sum=adding), 0
        for query in MANY[:, None]:
            with pytest.raises(RunFailed) as caught:
                await label(setup, {liar: lie}, query)
            found = accusations(caught.value, liar)  # none if the liar's own role ends it first
            assert all(is_among(liar, error) for error in found)
            noticed += any(isinstance(error, kind) for error in found)
        assert noticed > len(MANY) / 2


def ask_twice(adding: str) -> tuple[dict[str, Outcome], NDArray[Any], Ints]:
    """Have a client send a victim the mirror image of the queries that all others are sent.

    All rows are near one corner of the cube, and far from the queries of the others. Returns the
    outcomes, the client's first sum, and the victim's counts at the common thresholds.
    """
    rng, far, near = np.random.default_rng(3), np.zeros((40, 3)), np.ones((40, 3))
    parts = {name: Rows(1 - 0.3 * rng.random((30, 3)), np.zeros(30, int)) for name in FIVE}
    setup = ready(parts, classes=1, k=K, sum=adding)
    outcomes = play(setup, far, {CLIENT: AskTwice(VICTIM)})
    view, asked = outcomes[CLIENT].view, setup.parameters.search(len(far), len(FIVE)).ask()
    assert view is not None
    assert asked is not None
    total, *_ = next(read_totals(view))
    alone = clipped_counts(nearest_rows(near, parts[VICTIM], K).distances, asked)
    nobody_else = asked.values < 0.7 * np.sqrt(3)
    return outcomes, total[nobody_else], alone[nobody_else]


@pytest.mark.slow
@pytest.mark.parametrize("adding", SUMS)
def test_masks_that_bind_the_queries_open_nothing(
    adding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word equals the count of a victim of two tongues with probability 1/256 only.

    Of 400 or more words, one in ten equals it by chance with probability below 1e-30. If masks did
    not depend on the public inputs, the total would be the victim's count, because all others have
    no row within small radii. The victim names the client, and others suspect the victim as well:
    there is only its word against the client's.
    """
    outcomes, opened, alone = ask_twice(adding)
    assert opened.size >= 400
    assert np.mean(opened == alone) < 0.1
    victim = outcomes[VICTIM].error
    assert isinstance(victim, ProtocolViolation)
    assert victim.culprit == CLIENT
    for name in FIVE[1:]:
        error = outcomes[name].error
        if adding == "all-to-all" and isinstance(error, Tampered):
            assert error.suspects == (CLIENT, VICTIM)
    mask, nothing = PairwiseKeys.mask, bytes(DIGEST_BYTES)
    monkeypatch.setattr(PairwiseKeys, "mask", lambda keys, own, _digest: mask(keys, own, nothing))
    _, opened, alone = ask_twice(adding)
    assert alone.any()
    np.testing.assert_array_equal(opened, alone)


# A step of a search with k = 3 deals, checks, multiplies and compares; then the next one deals.
COMPARES = 4


@dataclass
class OtherWords(Adversary):
    """Sends a victim other words in one round: all or the last one raised, large, or short.

    Dealt words come first.
    """

    at: int
    made: str = "raised"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if self.round != self.at or to != VICTIM or not isinstance(message, Shares):
            return ((to, message),)
        words = message.words
        raised = ((words.astype(np.int64) + 1) % 251).astype(words.dtype)
        instead = {
            "raised": raised,
            "opened": np.append(words[:-1], raised[-1:]),
            "large": np.full_like(words, 251),
            "short": words[1:],
        }[self.made]
        return ((to, Shares(digest=message.digest, words=instead)),)


CONTINUE = OtherWords(COMPARES + 1, "opened")


@pytest.mark.parametrize(
    ("liar", "lie", "settings", "queries"),
    [
        *(
            (liar, lie, {"reveal": reveal}, QUERIES)
            for reveal in ("votes", "label")
            for liar, lie in (
                *((OTHER, OtherWords(COMPARES * step)) for step in (1, 2, 3)),
                (OTHER, OtherWords(COMPARES, "opened")),
                (CLIENT, AskTwice(VICTIM)),
            )
        ),
        # The first step ends this query; misled to believe that T is not k, the victim deals.
        (OTHER, CONTINUE, {"reveal": "votes"}, QUERIES[:1]),
        (CLIENT, CONTINUE, {"reveal": "votes", "sum": "star"}, QUERIES[:1]),
    ],
)
async def test_what_one_party_alone_is_sent_is_detected(
    liar: str, lie: Adversary, settings: Mapping[str, Any], queries: Floats
) -> None:
    """If one party is sent other words or queries, all runs fail.

    Every accusation includes the liar, also if the misled party continues its search.
    """
    error = await accused(liar, label(set_up(**settings), {liar: lie}, queries))
    why = "different public inputs", "results that honest rows cannot have"
    assert any(part in str(each) for part in why for each in error.errors.values())


def test_masks_of_parties_that_opened_different_values_do_not_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A party that tells a victim other words opens no equality test that depends on both.

    The masks of all parties add up to 0 until then. Of 40 sums, one in four is 0 by chance with
    probability below 1e-14.
    """
    masks = dict[int, list[Elements]]()

    def draw(scheme: Scheme, me: int, drawn: Mapping[int, Elements], count: int) -> Elements:
        masks.setdefault(me, []).append(zero_sums(scheme, me, drawn, count))
        return masks[me][-1]

    monkeypatch.setattr(shared, "zero_sums", draw)
    play(five_parties(k=3, reveal="votes"), MANY, {OTHER: OtherWords(COMPARES)})
    drawn = zip(*masks.values(), strict=False)  # some parties go on for a round
    *step, last = (np.sum(each, axis=0) % 251 for each in drawn)
    assert not np.concatenate(step).any()
    assert len(last) == len(MANY)
    assert np.mean(last == 0) < 1 / 4


@pytest.mark.parametrize("made", ["large", "short"])
@pytest.mark.parametrize("at", [1, 2, COMPARES])
async def test_impossible_words_are_refused(at: int, made: str) -> None:
    """Words outside the field, or too few words, are reported by the victim."""
    error = await accused(OTHER, label(set_up(reveal="votes"), {OTHER: OtherWords(at, made)}))
    assert isinstance(error.errors[VICTIM], ProtocolViolation)


@dataclass
class Subtract(UnevenCounts):
    """Subtracts words from the totals of masked sums up to a round, for itself and all others."""

    rows: Ints = field(kw_only=True)
    last: float = inf

    @override
    def counts(self, words: NDArray[Any]) -> NDArray[Any]:
        return (
            words if self.round > self.last else np.subtract(words, self.rows.astype(words.dtype))
        )


async def test_too_many_tied_rows_may_be_a_false_claim() -> None:
    """All parties learn that one of them may have claimed the rows, before any advice."""
    with pytest.raises(RunFailed) as caught:
        await label(set_up(reveal="label"), {OTHER: Subtract(rows=np.array(-100_000))})
    errors = [error for party, error in caught.value.errors.items() if party != OTHER]
    told = [str(error) for error in errors if isinstance(error, InputError)]
    assert told
    for error in told:
        assert "at most 32,760 votes can be compared" in error
        assert "One party may have claimed these rows" in error
        assert "shows the votes to all parties" in error


async def test_too_few_tied_rows_fail_a_check() -> None:
    """The batch goes on with the fewest rows that can tie, and all parties refuse it at its end."""
    setup = set_up(reveal="label")
    tied = setup.search(QUERIES, list(setup.parts.values())).tied_rows
    error = await accused(OTHER, label(setup, {OTHER: Subtract(rows=tied)}))
    for party in set(NAMES) - {OTHER}:
        assert "caused results that honest rows cannot have" in str(error.errors[party])


def failing(monkeypatch: pytest.MonkeyPatch, parties: Iterable[str]) -> None:
    """Have a check of each of some parties fail."""
    start = Checks.__init__

    def start_failed(checks: Checks, party: Party, keys: PairwiseKeys) -> None:
        start(checks, party, keys)
        if party.me in parties:
            checks.fail()

    monkeypatch.setattr(Checks, "__init__", start_failed)


def lower_total(by: int) -> Adversary:
    """Subtract rows from the total at the first threshold that is at least 0.3."""
    radii = first_cuts(Spacing(1.0, 16)).view(np.float64)
    return Subtract(rows=by * (np.arange(len(radii)) == (radii < 0.3).sum()), last=1)


HELD = {NAMES[0]: 3, NAMES[1]: 1, NAMES[2]: 0, LIAR: 0}
"""The rows of class 1 at distance 0.3; each party has five of class 0 at 0.9, and nine vote."""


def errors_of_honest(
    way: tuple[str, str], liar: Adversary, links: Topology | None = None
) -> list[tuple[object, ...]]:
    """Return the outcomes of the honest parties' runs, without their own names."""
    parts = {
        name: Rows(np.array([0.3] * near + [0.9] * 5)[:, None], np.array([1] * near + [0] * 5))
        for name, near in HELD.items()
    }
    setup = ready(parts, classes=2, k=9, sum=way[0], reveal=way[1])
    outcomes = play(setup, np.zeros((1, 1)), {LIAR: liar}, links=links)
    errors = [outcomes[name].error for name in HONEST]
    for name, error in zip(HONEST, errors, strict=True):
        if isinstance(error, Tampered):
            assert error.suspects == tuple(each for each in NAMES if each != name)
    return [(type(error), getattr(error, "reason", None)) for error in errors]


@pytest.mark.parametrize(
    ("way", "lie"),
    [
        *((way, lower_total) for way in WAYS[:2]),
        *((way, partial(WrongVotes, entry=0, taken=1)) for way in WAYS[:-1]),
    ],
)
def test_a_lie_is_noticed_by_all_or_none(
    way: tuple[str, str], lie: Callable[..., Adversary]
) -> None:
    """From two rows fewer or two moved votes on, one party notices it, and all abort alike."""
    for by in range(1, 5):
        (error,) = set(errors_of_honest(way, lie(by=by)))
        assert (error[0] is Tampered) == (by >= 2)


def test_the_first_to_abort_does_not_depend_on_whose_check_failed() -> None:
    """With unequal delays some parties receive the abort of another, equally for all lies."""
    links = Topology(LinkModel(latency=LogNormal(0.02, 0.3)))
    one, other = (errors_of_honest(WAYS[0], lower_total(by), links) for by in (2, 4))
    assert one == other


@pytest.mark.parametrize(("adding", "reveal"), WAYS)
@pytest.mark.parametrize("whose", [HONEST[:1], HONEST[1:2], HONEST])
def test_a_failed_check_changes_only_the_words_about_it(
    adding: str, reveal: str, whose: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other messages of all parties equal those of a batch without a failed check."""
    passed = play(set_up(sum=adding, reveal=reveal))
    assert {outcome.error for outcome in passed.values()} == {None}
    failing(monkeypatch, whose)
    failed = play(set_up(sum=adding, reveal=reveal))
    for name in NAMES:
        assert isinstance(failed[name].error, Tampered)
        one, other = passed[name].view, failed[name].view
        assert one is not None
        assert other is not None
        for here, there in zip(one.received, other.received, strict=True):
            is_check = here.sender in whose and isinstance(here.message, CheckWords | Commitment)
            assert here == there or is_check


def other_words(message: Message) -> Message:
    """Add 1 to masked words about checks, to which their sender has committed."""
    assert isinstance(message, CheckWords)
    first, *others = message.words
    return CheckWords(digest=message.digest, words=bytes([(first + 1) % 256, *others]))


@pytest.mark.parametrize(("adding", "reveal"), WAYS)
def test_words_other_than_promised_are_refused(adding: str, reveal: str) -> None:
    """A party that chooses its words after those of others is named by each of them."""
    lies = {LIAR: Alter(other_words, only=(CheckWords,))}
    outcomes = play(set_up(sum=adding, reveal=reveal), liars=lies)
    for name in HONEST:
        error = outcomes[name].error
        assert isinstance(error, ProtocolViolation)
        assert error.culprit == LIAR


@pytest.mark.parametrize("again", [False, True])
def test_the_same_parties_refuse_queries_whose_check_failed(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeating them would reveal how much can be falsified; `again` accepts that."""
    setup = set_up(again=again)
    own = setup.resident
    with monkeypatch.context() as patched:
        failing(patched, HONEST[:1])
        play(setup, QUERIES[:2], own=own)
    error = play(setup, own=own)[NAMES[0]].error
    if again:
        assert error is None
    else:
        assert isinstance(error, AskedBefore)
        assert "2 queries were already asked in a batch that failed a check" in str(error)
    assert play(setup, QUERIES[2:], own=own)[NAMES[0]].error is None
