"""Malicious parties of rank search: their gains, the checks they fail, and the parties named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.protocols.ring.worlds import accusations, is_among
from typing_extensions import override

from veilring import simulation
from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import InputError, ProtocolViolation, RunFailed, Tampered
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import View
from veilring.nodes.run import Run, blamed_party
from veilring.protocols.digests import DIGEST_BYTES
from veilring.protocols.masks import MaskedTotals, MaskedWords, PairwiseKeys
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch import SearchAnswer
from veilring.protocols.ranksearch.adversaries import (
    ADVERSARIES,
    AskTwice,
    MadeUpTotals,
    Replayer,
    TakeOver,
    UnevenCounts,
    WrongCounts,
    WrongVotes,
)
from veilring.protocols.ranksearch.algorithm.search import clipped_counts
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.ring.adversaries import InputSubstitution
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "rank-search.md"
NAMES = tuple(f"party-{n}" for n in range(5))
CLIENT, OTHER, VICTIM = NAMES[0], NAMES[1], NAMES[3]
EVERYWHERE = [("all-to-all", CLIENT), ("all-to-all", OTHER), ("star", CLIENT), ("star", OTHER)]
K = 5

RNG = np.random.default_rng(20)
QUERIES = RNG.random((40, 3))
ROWS = {name: Rows(RNG.random((30, 3)), RNG.integers(0, 3, 30)) for name in NAMES}


def set_up(**settings: Any) -> SearchSetup:
    """Return five parties that are ready to search."""
    system = RankSearch(k=K, **settings)
    return system.setup(ROWS, Facts(parties=len(NAMES), features=3, classes=3))


async def label(
    setup: SearchSetup, liars: Mapping[str, Adversary], queries: Floats = QUERIES
) -> Run[SearchAnswer]:
    """Label queries with some parties controlled by an adversary."""
    play = setup.play(queries)
    async with Cluster(NAMES, own=setup.resident, seed=5) as cluster:
        return await cluster.run(setup.role, only=play.only, adversaries=liars, **play.public)


def honest_labels(run: Run[SearchAnswer], liar: str) -> Ints:
    """Return the labels of all parties except the liar, shape (parties, queries)."""
    return np.stack([answer.labels for name, answer in run.results.items() if name != liar])


async def found_out(setup: SearchSetup, liars: Mapping[str, Adversary]) -> RunFailed:
    """Require that an honest party detects a liar, and that each accusation includes the liar."""
    with pytest.raises(RunFailed) as caught:
        await label(setup, liars)
    (liar,) = liars
    found = accusations(caught.value, liar)
    assert found, caught.value.errors
    assert all(is_among(liar, error) for error in found)
    return caught.value


@dataclass
class OneMore(Adversary):
    """Adds up, and reports one row too many to a victim if there are at least k."""

    victim: str

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if to == self.victim and isinstance(message, MaskedTotals) and len(message.words) == 1:
            (totals,) = message.words
            more = totals + ((totals >= K) & (totals < len(NAMES) * (K + 1)))
            message = MaskedTotals(digest=message.digest, words=(more.astype(totals.dtype),))
        return [(to, message)]


class TestLies:
    """Lies that are detected, and lies that are not."""

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    @pytest.mark.parametrize("weights", ["uniform", "distance"])
    async def test_k_claimed_rows_decide_every_label(
        self, adding: str, liar: str, weights: str
    ) -> None:
        """False rows at distance 0 from each query cannot be detected."""
        setup = set_up(sum=adding, weights=weights)
        run = await label(setup, {liar: TakeOver(by=K, entry=2)})
        assert (honest_labels(run, liar) == 2).all()

    async def test_one_claimed_row_decides_all_weighted_votes(self) -> None:
        """A row at distance 0 decides weighted votes alone; otherwise it has one vote of k."""
        run = await label(set_up(weights="distance"), {OTHER: TakeOver(by=1, entry=2)})
        assert (honest_labels(run, OTHER) == 2).all()
        setup = set_up()
        run = await label(setup, {OTHER: TakeOver(by=1, entry=2)})
        agreement = np.mean(honest_labels(run, OTHER) == setup.reference(QUERIES))
        assert 0.5 < agreement < 1.0

    @pytest.mark.parametrize("lie", [InputSubstitution(label=1), WrongCounts(by=0)], ids=repr)
    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    async def test_a_lie_about_its_own_rows_is_never_detected(
        self, adding: str, liar: str, lie: Adversary
    ) -> None:
        """Rows of another class, or no rows, are a valid input."""
        setup = set_up(sum=adding)
        labels = honest_labels(await label(setup, {liar: lie}), liar)
        assert (labels == labels[0]).all()
        assert 0.5 < np.mean(labels == setup.reference(QUERIES)) < 1.0

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    async def test_counts_without_votes_are_detected_by_the_votes(
        self, adding: str, liar: str
    ) -> None:
        """Totals with false rows look honest, but the corresponding votes are missing."""
        await found_out(set_up(sum=adding), {liar: WrongCounts(by=3)})

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    @pytest.mark.parametrize("lie", [WrongCounts(by=K + 2), UnevenCounts()], ids=repr)
    async def test_impossible_totals_are_detected(
        self, adding: str, liar: str, lie: Adversary
    ) -> None:
        """A party cannot count more than the maximum, and totals cannot fall."""
        await found_out(set_up(sum=adding), {liar: lie})

    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    async def test_repeated_words_are_detected(self, adding: str) -> None:
        """Their masks belong to another sum, so the total is noise."""
        await found_out(set_up(sum=adding), {OTHER: Replayer()})

    @pytest.mark.parametrize("weights", ["uniform", "distance"])
    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    async def test_added_votes_are_detected(self, adding: str, liar: str, weights: str) -> None:
        """They do not add up to the rows found, nor does an additional row at distance 0."""
        setup = set_up(sum=adding, weights=weights)
        await found_out(setup, {liar: WrongVotes(entry=1)})

    @pytest.mark.parametrize(("adding", "liar"), EVERYWHERE)
    async def test_moved_votes_are_detected_only_by_a_party_that_misses_its_own(
        self, adding: str, liar: str
    ) -> None:
        """No other check keeps a party from moving another party's vote."""
        setup, lie = set_up(sum=adding), WrongVotes(entry=1, taken=0)
        await found_out(setup, {liar: lie})
        kept, turned = 0, 0
        for query, expected in zip(QUERIES[:, None], setup.reference(QUERIES), strict=True):
            try:
                run = await label(setup, {liar: lie}, query)
            except RunFailed:
                continue
            kept += 1
            turned += (honest_labels(run, liar) != expected).any()
        assert 0 < turned < kept < len(QUERIES)

    async def test_two_versions_of_counts_name_their_sender(self) -> None:
        """A victim of two different totals has a different hash, and names their sender."""
        setup, hashes = set_up(sum="star"), 0
        for query in QUERIES[:, None]:
            with pytest.raises(RunFailed) as caught:
                await label(setup, {CLIENT: OneMore(VICTIM)}, query)
            found = accusations(caught.value, CLIENT)
            assert all(is_among(CLIENT, error) for error in found)
            named = [error for error in found if isinstance(error, ProtocolViolation)]
            assert {error.culprit for error in named} <= {CLIENT}
            hashes += bool(named)
        assert hashes > len(QUERIES) / 2

    @pytest.mark.parametrize("lie", [WrongCounts(victim=VICTIM), WrongVotes(2, 1, 0, VICTIM)])
    @pytest.mark.parametrize(("adding", "liar"), [("all-to-all", OTHER), ("star", CLIENT)])
    async def test_a_different_total_for_a_victim_is_detected(
        self, adding: str, liar: str, lie: Adversary
    ) -> None:
        """The exchange of checks confirms all totals, so no query ends with two labels."""
        setup, noticed = set_up(sum=adding), 0
        for query in QUERIES[:, None]:
            with pytest.raises(RunFailed) as caught:
                await label(setup, {liar: lie}, query)
            found = accusations(caught.value, liar)  # none if the liar's own role ends it first
            assert all(is_among(liar, error) for error in found)
            noticed += bool(found)
        assert noticed > len(QUERIES) / 2

    @pytest.mark.parametrize("factor", [0.0, 0.5, 0.9])
    async def test_invented_totals_are_detected(self, factor: float) -> None:
        """Invented totals are detected: the remainder falls where a party's own count rises."""
        lie = MadeUpTotals(factor)
        await found_out(set_up(sum="star"), {CLIENT: lie})

    def test_a_silent_party_is_named(self) -> None:
        """A silent party is named, and no party ends with a label."""
        setup = set_up()
        play = setup.play(QUERIES)

        async def main() -> None:
            silent = {OTHER: Silent(first_round=2)}
            async with Cluster(NAMES, runtime="simulated", own=setup.resident, seed=5) as cluster:
                await cluster.run(
                    setup.role, only=play.only, adversaries=silent, seconds=60.0, **play.public
                )

        with pytest.raises(RunFailed) as caught:
            simulation.simulate(main())
        assert blamed_party(caught.value) == OTHER

    def test_a_lie_works_on_every_runtime(self, run_protocol: ProtocolRunner) -> None:
        """The adversary is sent to its process, and the accusation returns."""
        setup = set_up()
        play = setup.play(QUERIES)
        with pytest.raises(RunFailed) as caught:
            run_protocol(
                setup.role,
                list(NAMES),
                own=list(setup.resident),
                only=play.only,
                adversaries={OTHER: UnevenCounts()},
                **play.public,
            )
        assert all(is_among(OTHER, error) for error in accusations(caught.value, OTHER))
        assert accusations(caught.value, OTHER)


class TestTwoTongues:
    """A client that sends a victim other queries than all others."""

    FAR, NEAR = np.zeros((40, 3)), np.ones((40, 3))
    """Sends one set of questions to most parties and its mirror image to the victim."""

    @pytest.fixture
    def setup(self, adding: Literal["all-to-all", "star"]) -> SearchSetup:
        """Return parties whose rows are all near one corner of the cube."""
        rng = np.random.default_rng(3)
        parts = {name: Rows(1 - 0.3 * rng.random((30, 3)), np.zeros(30, int)) for name in NAMES}
        system = RankSearch(k=K, sum=adding)
        return system.setup(parts, Facts(parties=len(NAMES), features=3, classes=1))

    @pytest.fixture
    def unbound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make masks independent of the public inputs."""
        mask = PairwiseKeys.mask
        monkeypatch.setattr(
            PairwiseKeys, "mask", lambda keys, own, _digest: mask(keys, own, bytes(DIGEST_BYTES))
        )

    @pytest.mark.usefixtures("unbound")
    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    async def test_unbound_masks_would_reveal_the_victim(self, setup: SearchSetup) -> None:
        """All others have no row within small radii, so the total is the victim's count."""
        opened, alone = await self.read(setup)
        assert alone.any()
        np.testing.assert_array_equal(opened, alone)

    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    async def test_bound_masks_open_nothing(self, setup: SearchSetup) -> None:
        """A word equals the victim's count with probability 1/256 only.

        Of 400 or more words, one in ten equals it by chance with probability below 1e-30.
        """
        opened, alone = await self.read(setup)
        assert opened.size >= 400
        assert np.mean(opened == alone) < 0.1

    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    async def test_the_victim_names_the_client(self, setup: SearchSetup, adding: str) -> None:
        """There is only its word against the client's, so others suspect the victim as well."""
        errors = (await self.ask(setup))[0]
        victim = errors[VICTIM]
        assert isinstance(victim, ProtocolViolation)
        assert victim.culprit == CLIENT
        for name in NAMES[1:]:
            error = errors[name]
            if adding == "all-to-all" and isinstance(error, Tampered):
                assert error.suspects == (CLIENT, VICTIM)

    async def ask(self, setup: SearchSetup) -> tuple[dict[str, BaseException | None], View]:
        """Return the error of each party, and the client's view."""
        play = setup.play(self.FAR)
        async with Cluster(NAMES, own=setup.resident, seed=5) as cluster:
            outcomes = await cluster.play(
                setup.role,
                only=play.only,
                watch=[CLIENT],
                adversaries={CLIENT: AskTwice(VICTIM)},
                **play.public,
            )
        view = next(outcome.view for outcome in outcomes if outcome.party == CLIENT)
        assert view is not None
        return {outcome.party: outcome.error for outcome in outcomes}, view

    async def read(self, setup: SearchSetup) -> tuple[NDArray[np.uint8], Ints]:
        """Return the client's first sum and the victim's counts at the common thresholds."""
        _, view = await self.ask(setup)
        sent = next(
            seen.message
            for seen in view.sent
            if isinstance(seen.message, MaskedWords | MaskedTotals)
        )
        total = sent.words[0].copy()
        if isinstance(sent, MaskedWords):
            heard = {
                seen.sender: seen.message.words[0]
                for seen in reversed(view.received)
                if isinstance(seen.message, MaskedWords)
            }
            assert set(heard) == set(NAMES[1:])
            total += np.add.reduce(list(heard.values()))
        asked = setup.parameters.search(len(self.FAR), len(NAMES)).ask()
        assert asked is not None
        near = nearest_rows(self.NEAR, setup.parts[VICTIM], K).distances
        nobody_else = asked.values < 0.7 * np.sqrt(3)
        return total[nobody_else], clipped_counts(near, asked)[nobody_else]


class TestReady:
    """The built-in adversaries: their refusals and their documentation."""

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: WrongCounts(by=-1), "by is -1"),
            (lambda: TakeOver(by=-1), "by is -1"),
            (lambda: WrongVotes(by=0), "by is 0"),
            (lambda: WrongVotes(entry=-1), "entry is -1"),
            (lambda: MadeUpTotals(1.5), "factor is 1.5"),
        ],
    )
    def test_an_invalid_adversary_is_refused(
        self, make: Callable[[], Adversary], message: str
    ) -> None:
        """The error gives the allowed values."""
        with pytest.raises(InputError, match=message):
            make()

    def test_each_is_on_the_page(self) -> None:
        """The page has a line for each name that a scenario can use."""
        page = PAGE.read_text(encoding="utf-8")
        assert {name for name in ADVERSARIES if f"| `{name}` |" not in page} == set()
