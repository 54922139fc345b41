"""Failed checks: all parties learn that one failed, and no party learns whose it was."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import NAMES, QUERIES, options, set_up
from typing_extensions import override

from veilring import simulation
from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import AskedBefore, ProtocolViolation, Tampered
from veilring.nodes.adversary import Adversary, Alter, Lines
from veilring.nodes.cluster import Cluster
from veilring.nodes.party import Party
from veilring.nodes.run import Outcome
from veilring.nodes.runtimes import Simulated
from veilring.protocols.masks import MaskedWords, PairwiseKeys
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.adversaries import WrongVotes
from veilring.protocols.ranksearch.algorithm.search import first_cuts
from veilring.protocols.ranksearch.shared import Checks, CheckWords, Commitment
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.simulation import LinkModel, LogNormal, Topology
from veilring.transport.messages import Message

LIAR, HONEST = NAMES[-1], NAMES[:-1]
SUMS = ("all-to-all", "star")
WAYS = [*((adding, "totals") for adding in SUMS), ("all-to-all", "votes"), ("all-to-all", "label")]


def play(
    setup: SearchSetup,
    queries: Floats = QUERIES,
    *,
    liar: Adversary | None = None,
    links: Topology | None = None,
    own: tuple[object, ...] = (),
) -> dict[str, Outcome]:
    """Return the outcome of each party, with its view, possibly with a malicious one."""
    asked = options(setup, NAMES, queries)

    async def main() -> list[Outcome]:
        runtime = Simulated(links or Topology())
        async with Cluster(NAMES, runtime=runtime, own=own or setup.resident, seed=3) as cluster:
            return list(
                await cluster.play(
                    setup.role, adversaries={LIAR: liar} if liar else {}, watch=NAMES, **asked
                )
            )

    return {outcome.party: outcome for outcome in simulation.simulate(main())}


def failing(monkeypatch: pytest.MonkeyPatch, parties: Iterable[str]) -> None:
    """Have a check of each of some parties fail."""
    start = Checks.__init__

    def start_failed(checks: Checks, party: Party, keys: PairwiseKeys) -> None:
        start(checks, party, keys)
        if party.me in parties:
            checks.fail()

    monkeypatch.setattr(Checks, "__init__", start_failed)


@dataclass
class LowerTotal(Adversary):
    """Subtracts rows from the total at the first threshold that is at least 0.3."""

    by: int

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return [(to, self._lowered(message))]

    @override
    async def received(self, sender: str, message: Message) -> Message:
        return self._lowered(message) if sender == self.party.peers[0] else message

    def _lowered(self, message: Message) -> Message:
        if not isinstance(message, MaskedWords) or self.round > 1:
            return message
        (words,) = message.words
        at = int((first_cuts(1.0, 16).view(np.float64) < 0.3).sum())
        words = words.copy()
        words[at] -= words.dtype.type(self.by)
        return MaskedWords(digest=message.digest, words=(words,))


class TestWhoAborts:
    """A liar that falsifies a total that only some parties can notice."""

    QUERY = np.zeros((1, 1))
    HELD: ClassVar = {NAMES[0]: 3, NAMES[1]: 1, NAMES[2]: 0, LIAR: 0}
    """The rows of class 1 at distance 0.3; each party has five of class 0 at 0.9."""

    @pytest.fixture
    def setup(self, adding: str, reveal: str) -> SearchSetup:
        """Return the parties; the nine nearest rows vote."""
        parts = {
            name: Rows(np.array([0.3] * near + [0.9] * 5)[:, None], np.array([1] * near + [0] * 5))
            for name, near in self.HELD.items()
        }
        system = RankSearch(k=9, sum=adding, reveal=reveal)  # type: ignore[arg-type]  # a parameter of the test
        return system.setup(parts, Facts(parties=len(NAMES), features=1, classes=2))

    def errors(
        self, setup: SearchSetup, liar: Adversary, links: Topology | None = None
    ) -> list[tuple[object, ...]]:
        """Return what the honest parties' runs end with, without their own names."""
        outcomes = play(setup, self.QUERY, liar=liar, links=links)
        errors = [outcomes[name].error for name in HONEST]
        for name, error in zip(HONEST, errors, strict=True):
            if isinstance(error, Tampered):
                assert error.suspects == tuple(each for each in NAMES if each != name)
        return [(type(error), getattr(error, "reason", None)) for error in errors]

    @pytest.mark.parametrize(
        ("adding", "reveal", "lie"),
        [
            *((adding, "totals", LowerTotal) for adding in SUMS),
            *((*way, partial(WrongVotes, entry=0, taken=1)) for way in WAYS[:-1]),
        ],
    )
    def test_a_lie_is_noticed_by_all_or_none(
        self, setup: SearchSetup, lie: Callable[..., Adversary]
    ) -> None:
        """From two rows fewer or two moved votes on, one party notices it, and all abort alike."""
        for by in range(1, 5):
            (error,) = set(self.errors(setup, lie(by=by)))
            assert (error[0] is Tampered) == (by >= 2)

    @pytest.mark.parametrize(("adding", "reveal"), [("all-to-all", "totals")])
    def test_the_first_to_abort_does_not_depend_on_whose_check_failed(
        self, setup: SearchSetup
    ) -> None:
        """With unequal delays some parties receive the abort of another, equally for all lies."""
        links = Topology(LinkModel(latency=LogNormal(0.02, 0.3)))
        found = [self.errors(setup, LowerTotal(by), links) for by in (2, 4)]
        assert found[0] == found[1]


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
        assert differing(passed[name], failed[name]) <= {
            (sender, kind) for sender in whose for kind in (CheckWords, Commitment)
        }


def differing(one: Outcome, other: Outcome) -> set[tuple[str, type[Message]]]:
    """Return the senders and types of the messages that differ between two views."""
    assert one.view is not None
    assert other.view is not None
    pairs = zip(one.view.received, other.view.received, strict=True)
    return {(here.sender, type(here.message)) for here, there in pairs if here != there}


def other_words(message: Message) -> Message:
    """Add 1 to masked words about checks, to which their sender has committed."""
    assert isinstance(message, CheckWords)
    first, *others = message.words
    return CheckWords(digest=message.digest, words=bytes([(first + 1) % 256, *others]))


@pytest.mark.parametrize(("adding", "reveal"), WAYS)
def test_words_other_than_promised_are_refused(adding: str, reveal: str) -> None:
    """A party that chooses its words after those of others is named by each of them."""
    outcomes = play(set_up(sum=adding, reveal=reveal), liar=Alter(other_words, only=(CheckWords,)))
    for name in HONEST:
        error = outcomes[name].error
        assert isinstance(error, ProtocolViolation)
        assert error.culprit == LIAR


class TestRepetition:
    """The queries of a batch with a failed check, asked again."""

    @pytest.mark.parametrize("again", [False, True])
    def test_the_same_parties_refuse_them(
        self, again: bool, monkeypatch: pytest.MonkeyPatch
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
