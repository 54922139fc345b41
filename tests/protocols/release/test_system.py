"""Release as a system: equal everywhere, at its forecast, charged before sending; refusals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.protocols.release.schemas import MIXED, draw_rows, facts_of, schema
from typing_extensions import override

from veilring import simulation
from veilring.arrays import Floats, Ints
from veilring.data.table import Features, Rows
from veilring.errors import (
    InputError,
    PeerLost,
    ProtocolViolation,
    RunFailed,
    SessionAborted,
    Tampered,
    TooManyLost,
)
from veilring.nodes.adversary import Adversary, Lines, Silent
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Cost, Traffic
from veilring.nodes.run import Outcome, Run, blamed_party
from veilring.nodes.runtimes import Simulated
from veilring.protocols.masks import MaskedTotals, MaskedWords, MaskKey
from veilring.protocols.promise import Forecast, Spent
from veilring.protocols.release.algorithm.classifiers import GridClassifier
from veilring.protocols.release.algorithm.noise import Account, Trust
from veilring.protocols.release.algorithm.statistic import Bound, Entries, Statistic
from veilring.protocols.release.algorithm.steps import (
    Released,
    ReleaseParameters,
    Total,
    release_steps,
    released_by,
    simulate_release,
)
from veilring.protocols.release.roles import (
    PIECE_WORDS,
    Adding,
    ReleasedWords,
    owner_cost,
    release_by_owner,
    release_cost,
    release_rows,
)
from veilring.protocols.release.system import Release
from veilring.simulation import Constant, LinkModel, Topology
from veilring.simulation.faults import Fault
from veilring.testing import ProtocolRunner
from veilring.transport.messages import Message

NAMES = [f"party-{n}" for n in range(5)]
ROWS = 150
# One statistic with a first release, a pure one, one of a tally, and one with many numbers.
RELEASES = {
    "lda": Release(statistic="lda"),
    "pure means": Release(statistic="means", delta=0.0),
    "skellam": Release(statistic="means", distribution="skellam"),
    "trees": Release(statistic="trees", delta=0.0),
    "auto": Release(tolerated=1),
    "with losses": Release(statistic="means", tolerated=1, lost=2),
}
SUMS: tuple[Adding, ...] = ("all-to-all", "star")
released_as = pytest.mark.parametrize("name", RELEASES)


def rows_of(features: Features, rows: int = ROWS) -> Rows:
    """Return random rows of a schema."""
    rng = np.random.default_rng(6)
    return Rows(draw_rows(features, rows, rng), rng.integers(0, len(features.classes), rows))


def dealt(features: Features = MIXED) -> list[Rows]:
    """Deal rows to all parties except one, which has none."""
    rows = rows_of(features)
    parts = [Rows(rows.features[n::4], rows.labels[n::4]) for n in range(4)]
    return [*parts, Rows(np.zeros((0, len(features))), np.zeros(0, np.int64))]


def bound(system: Release, parties: int = 5, features: Features = MIXED) -> ReleaseParameters:
    """Return the rows of the parties."""
    return system.bind(facts_of(features, parties, ROWS))


def play(runner: ProtocolRunner, system: Release, adding: Adding = "all-to-all") -> Run[Released]:
    """Have all parties release."""
    return runner(
        release_rows,
        NAMES,
        own=dealt(),
        client="party-2",
        parameters=bound(system),
        adding=adding,
        seed=11,
    )


def measured(cost: Cost) -> Forecast:
    """Return a measured cost in the form of a forecast."""
    return Forecast(cost.rounds, Traffic(cost.messages, cost.bytes), cost.setup)


def the_same(released: Released, other: Released) -> bool:
    """Return whether two releases are equal in every number, and label rows alike."""
    rows = rows_of(MIXED).features
    return all(
        np.array_equal(one.sums, two.sums) and one.shares == two.shares
        for one, two in zip(released.totals, other.totals, strict=True)
    ) and np.array_equal(released.model.scores(rows), other.model.scores(rows))


class TestPeers:
    """Parties that release together."""

    @released_as
    def test_a_release_is_equal_everywhere_at_its_forecast(
        self, run_protocol: ProtocolRunner, name: str
    ) -> None:
        """Totals, models and transcripts equal those in memory, at the closed form's cost."""
        system = RELEASES[name]
        run, here = play(run_protocol, system), play(ProtocolRunner("memory"), system)
        assert run.transcript == here.transcript
        expected = here.results["party-0"]
        assert all(the_same(released, expected) for released in run.results.values())
        assert measured(run.cost) == release_cost(5, bound(system), "all-to-all")
        forecast = system.forecast(parties=5, queries=9, features=MIXED, rows=ROWS)
        assert measured(run.cost) == forecast

    @released_as
    def test_a_star_has_its_forecast(self, name: str) -> None:
        """Its cost equals the closed form, with the confirmation of its totals."""
        system = RELEASES[name].model_copy(update={"sum": "star"})
        run = play(ProtocolRunner("memory"), system, "star")
        assert measured(run.cost) == release_cost(5, bound(system), "star")

    def test_a_star_has_the_same_totals(self, run_protocol: ProtocolRunner) -> None:
        """Noise is drawn by each party, so it does not depend on the way of adding up."""
        system = RELEASES["lda"]
        run, here = play(run_protocol, system, "star"), play(ProtocolRunner("memory"), system)
        expected = here.results["party-0"]
        assert all(the_same(released, expected) for released in run.results.values())
        assert measured(run.cost) == release_cost(5, bound(system), "star")

    @released_as
    def test_totals_are_the_sums_of_all_rows_and_their_noise(self, name: str) -> None:
        """The first total differs from the exact sum, by at most 40 deviations."""
        parameters = bound(RELEASES[name])
        total = play(ProtocolRunner("memory"), RELEASES[name]).results["party-0"].totals[0]
        rows, noise = rows_of(MIXED), parameters.noises[0]
        exact = (parameters.first or parameters.main()).sum(rows.features, rows.labels)
        away = np.abs(total.sums - exact)
        assert 0 < away.max() <= 40 * noise.deviation()

    def test_totals_larger_than_a_frame_are_sent_in_pieces(self) -> None:
        """Each piece is a separate masked sum, and the pieces form the whole."""
        features = schema(300, classes=450)
        parts = [rows_of(features, 3), rows_of(features, 2), rows_of(features, 1)]
        system = Release(statistic="means", delta=0.0)
        parameters = system.bind(facts_of(features, 3, 6))
        assert PIECE_WORDS < 300 * 450 < 2 * PIECE_WORDS
        run = ProtocolRunner("simulated")(
            release_rows, NAMES[:3], own=parts, client="party-0", parameters=parameters, seed=1
        )
        assert measured(run.cost) == release_cost(3, parameters, "all-to-all")
        assert run.cost.rounds == 3
        assert run.results["party-1"].totals[0].sums.shape == (300 * 450,)

    @pytest.mark.parametrize(
        ("system", "columns"),
        [(Release(statistic="lda"), 100), (Release(statistic="counts", delta=0.0), 700)],
        ids=["gaussian", "pure"],
    )
    def test_every_party_adds_its_whole_share_of_the_noise(
        self, system: Release, columns: int
    ) -> None:
        """The mean squared noise of the totals of three parties is that of three whole shares.

        If one share were halved, it would be 3/4, and without one share 2/3. It is within 6 of its
        standard deviations, which a right one exceeds with a probability below 1e-8.
        """
        features = schema(columns, classes=4)
        parts = [rows_of(features, 3), rows_of(features, 2), rows_of(features, 1)]
        parameters = system.bind(facts_of(features, 3, 6))
        run = ProtocolRunner("simulated")(
            release_rows, NAMES[:3], own=parts, client="party-0", parameters=parameters, seed=3
        )
        totals, steps = run.results["party-1"].totals, release_steps(parameters)
        step = next(steps)
        for total in totals[:-1]:
            step = steps.send(total)
        exact = sum(step.statistic.sum(part.features, part.labels) for part in parts)
        squares = np.square((totals[-1].sums - exact) / parameters.noises[-1].deviation())
        spread = squares.std() / np.sqrt(squares.size)
        assert abs(squares.mean() - 1) < 6 * spread < 0.2

    def test_a_simulation_draws_the_noise_of_all_parties(self) -> None:
        """Over 60 releases the mean squared noise is within 6 deviations of its expectation."""
        parameters = bound(RELEASES["trees"])
        parts, rng = dealt(), np.random.default_rng(2)
        rows, noise = rows_of(MIXED), parameters.noises[-1]
        exact = parameters.main().sum(rows.features, rows.labels)
        drawn = [
            simulate_release(parts, parameters, rng.spawn(5)).totals[-1].sums - exact
            for _ in range(60)
        ]
        squares = np.square(np.array(drawn) / noise.deviation())
        # A Laplace number's square has a deviation of the root of 5; of Pólya shares it is a little
        # more, and 6 deviations of a mean are passed with a probability below 1e-8.
        spread = squares.std() / np.sqrt(squares.size)
        assert abs(squares.mean() - 1) < 6 * spread < 0.3


@dataclass
class LastWords(Adversary):
    """Changes its words of the last sum for one party."""

    to: str
    at: int

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, MaskedWords | MaskedTotals) and (to, self.round) == (
            self.to,
            self.at,
        ):
            words = tuple(each + each.dtype.type(1 << 40) for each in message.words)
            message = message.model_copy(update={"words": words})
        return [(to, message)]


@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("name", ["pure means", "lda"])
def test_parties_with_different_models_notice(name: str, adding: Adding) -> None:
    """A liar in the last sum leaves no two honest parties with different totals."""
    parameters = bound(RELEASES[name])
    last = release_cost(5, parameters, adding).rounds - 1
    liar = "party-2" if adding == "star" else "party-4"
    with pytest.raises(RunFailed) as failed:
        ProtocolRunner("simulated")(
            release_rows,
            NAMES,
            own=dealt(),
            client="party-2",
            parameters=parameters,
            adding=adding,
            adversaries={liar: LastWords("party-1", last)},
            seed=11,
        )
    found = [error for name, error in failed.value.errors.items() if name != liar]
    assert found
    assert all(isinstance(each, Tampered | ProtocolViolation | SessionAborted) for each in found)


def blamed_in_release(silent: int, parties: int, tolerated: int, adding: Adding, first: int) -> str:
    """Return the party that is blamed if one is silent in a release from a round on."""
    few = Features.of_numbers(2, 2)
    system = Release(statistic="means", tolerated=tolerated)
    own = [Rows(np.array([[0.2, 0.3]]), np.array([0]))] * parties

    async def release() -> object:
        async with Cluster(parties, runtime=Simulated(), own=own, seed=1) as cluster:
            return await cluster.run(
                release_rows,
                client="party-0",
                parameters=system.bind(facts_of(few, parties, parties)),
                adding=adding,
                adversaries={f"party-{silent}": Silent(first_round=first)},
            )

    with pytest.raises(RunFailed) as failed:
        simulation.simulate(release())
    return blamed_party(failed.value)


@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_silent_party_is_blamed(adding: Adding, first: int) -> None:
    """It is blamed in the agreement on keys, in each sum and in the confirmation."""
    for silent in (0, 7, 19):
        assert blamed_in_release(silent, 20, 1, adding, first) == f"party-{silent}"


@pytest.mark.slow
@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize(
    ("parties", "tolerated", "first"), [(40, 3, 0), (40, 3, 1), (40, 3, 3), (60, 12, 0)]
)
def test_every_silent_party_is_blamed(
    parties: int, tolerated: int, adding: Adding, first: int
) -> None:
    """At every position, the silent party is blamed and no honest one is."""
    for silent in range(parties):
        found = blamed_in_release(silent, parties, tolerated, adding, first)
        assert found == f"party-{silent}"


@pytest.mark.slow
@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("first", [0, 1, 4, 5])
def test_a_release_that_may_lose_some_blames_no_honest_party(adding: Adding, first: int) -> None:
    """A party that falls silent in a round is lost, and only the silent client ends the release."""
    few, own = Features.of_numbers(2, 2), [Rows(np.array([[0.2, 0.3]]), np.array([0]))] * 8
    parameters = Release(statistic="means", tolerated=1, lost=2).bind(facts_of(few, 8, 80))

    async def release(silent: str) -> Run[Released]:
        async with Cluster(8, runtime=Simulated(), own=own, seed=1) as cluster:
            return await cluster.run(
                release_rows,
                client="party-0",
                parameters=parameters,
                adding=adding,
                adversaries={silent: Silent(first_round=first)},
            )

    for silent in (f"party-{number}" for number in range(1, 8)):
        assert simulation.simulate(release(silent)).lost == (silent,)
    with pytest.raises(RunFailed) as failed:
        simulation.simulate(release("party-0"))
    assert blamed_party(failed.value) in {"party-0", ""}  # nobody, if it gave up the others first


def test_parties_that_may_lose_some_notice_different_models() -> None:
    """In a star, each party names the client that sent one of them other totals, or both ends."""
    parameters = bound(RELEASES["with losses"])
    with pytest.raises(RunFailed) as failed:
        ProtocolRunner("simulated")(
            release_rows,
            NAMES,
            own=dealt(),
            client="party-2",
            parameters=parameters,
            adding="star",
            adversaries={
                "party-2": LastWords("party-1", release_cost(5, parameters, "star").rounds - 1)
            },
            seed=11,
        )
    found = {name: error for name, error in failed.value.errors.items() if name != "party-2"}
    assert len(found) == 4
    for name, error in found.items():
        assert isinstance(error, Tampered | ProtocolViolation | SessionAborted), name
        if isinstance(error, Tampered):
            assert "party-2" in error.suspects
            assert len(error.suspects) == 2
        elif isinstance(error, ProtocolViolation):
            assert error.culprit == "party-2"


async def release_under(faults: Sequence[Fault], parts: Sequence[Rows], lost: int) -> Run[Any]:
    """Release the rows of some parties under faults, with almost no noise."""
    system = Release(epsilon=900.0, statistic="counts", tolerated=1, lost=lost)
    parameters = system.bind(facts_of(MIXED, len(parts), ROWS))
    links = Topology(LinkModel(latency=Constant(0.01)))
    async with Cluster(len(parts), runtime=Simulated(links, faults), own=parts, seed=2) as cluster:
        return await cluster.run(release_rows, client="party-0", parameters=parameters)


class TestLosses:
    """Releases that continue without lost parties."""

    @pytest.mark.parametrize("seed", range(12))
    def test_a_third_of_twelve_parties_may_crash_at_any_time(self, seed: int) -> None:
        """All remaining parties have one release, of the rows that arrived."""
        rng = np.random.default_rng(seed)
        rows = rows_of(MIXED)
        parts = [Rows(rows.features[n::12], rows.labels[n::12]) for n in range(12)]
        gone = rng.choice(np.arange(1, 12), 4, replace=False)
        at = rng.uniform(0.0, 0.08, 4)  # set-up ends after 30 ms
        faults = [Fault("crash", t, t, (f"party-{n}",)) for n, t in zip(gone, at, strict=True)]
        run = simulation.simulate(release_under(faults, parts, lost=4))
        first, *others = run.results.values()
        assert all(the_same(first, other) for other in others)
        (total,) = first.totals
        assert 8 <= total.shares <= 12
        # Each row is one count in each of the table's columns.
        columns = 4
        counted = total.sums.sum() / columns
        sizes = np.array([len(part) for part in parts])
        missing = int(sizes.max()) * (12 - total.shares)
        assert counted == pytest.approx(int(sizes.sum()), abs=missing + 1)

    def test_one_loss_too_many_ends_it_without_disclosure(self) -> None:
        """With two parties lost of which one was tolerated, no party has a release."""
        faults = [Fault("crash", 0.031, 0.031, (f"party-{n}",)) for n in (2, 3)]
        with pytest.raises(RunFailed) as failed:
            simulation.simulate(release_under(faults, dealt(), lost=1))
        assert isinstance(failed.value.root, TooManyLost | PeerLost)

    def test_losses_need_noise_and_limit_collusion(self) -> None:
        """They add noise, and colluders must not suffice to open a sum."""
        assert Release(lost=2).trust_among(8) == Trust(8, 3, 2)
        promise = Release(lost=2).promise(parties=8)
        assert "at most 2 drop out" in promise.threat_model
        assert "client" not in promise.note
        for lost in (3, 4):
            named = "a client that colludes could open the sums of two sets of parties"
            assert named in Release(lost=lost).promise(parties=8).note
        with pytest.raises(InputError, match="no share of the noise"):
            Release(lost=4, tolerated=4).trust_among(8)


class Recorder:
    """A till that records its charges; a party sends nothing before the first."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.charged: list[Account] = []
        self._refuses = refuses

    def __call__(self, account: Account) -> None:
        """Record a charge."""
        self.charged.append(account)
        if self._refuses:
            raise InputError.because("nothing is left", field="key")


class TestPaying:
    """The moment at which a release is charged."""

    def test_a_whole_release_is_charged_once(self) -> None:
        """Two sums are one charge, of the whole account."""
        till, parameters = Recorder(), bound(RELEASES["lda"])
        ProtocolRunner("simulated")(
            release_rows,
            NAMES,
            own=dealt(),
            only={"party-1": {"charge": till}},
            client="party-0",
            parameters=parameters,
            seed=1,
        )
        assert till.charged == [parameters.account]
        assert till.charged[0].epsilon(1e-5) <= 1.0

    def test_a_party_that_cannot_pay_sends_nothing_about_its_rows(self) -> None:
        """A party whose till refuses has sent keys, but no masked words."""

        async def refused() -> list[Outcome]:
            async with Cluster(NAMES, runtime=Simulated(), own=dealt(), seed=1) as cluster:
                return await cluster.play(
                    release_rows,
                    watch=NAMES,
                    only={"party-1": {"charge": Recorder(refuses=True)}},
                    client="party-0",
                    parameters=bound(RELEASES["lda"]),
                )

        view = simulation.simulate(refused())[1].view
        assert view is not None
        kinds = {type(seen.message) for seen in view.sent}
        assert MaskKey in kinds
        assert MaskedWords not in kinds


@dataclass
class Wrong(Adversary):
    """An owner that sends fewer words, or claims more shares in the total."""

    words: int | None
    shares: int

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, ReleasedWords):
            message = ReleasedWords(shares=self.shares, words=message.words[: self.words])
        return [(to, message)]


class TestOwner:
    """An owner that holds all rows, and its client."""

    @released_as
    def test_an_owner_releases_equally_everywhere(
        self, run_protocol: ProtocolRunner, name: str
    ) -> None:
        """The client has the owner's totals and its model, at the closed form's cost."""
        system = RELEASES[name].model_copy(update={"trusted": True})
        parameters = bound(system, 1)

        def run(runner: ProtocolRunner) -> Run[Released]:
            own = [rows_of(MIXED), None]
            return runner(
                release_by_owner, ("server", "ada"), own=own, parameters=parameters, seed=3
            )

        there, here = run(run_protocol), run(ProtocolRunner("memory"))
        assert there.transcript == here.transcript
        assert the_same(there.results["ada"], here.results["server"])
        assert measured(there.cost) == owner_cost(parameters)

    def test_an_owner_alone_needs_no_message(self) -> None:
        """The role of peers, played by one party, adds its noise and sends nothing."""
        parameters = bound(Release(trusted=True), 1)
        run = ProtocolRunner("simulated")(
            release_rows,
            ("ada",),
            own=[rows_of(MIXED)],
            client="ada",
            parameters=parameters,
            seed=3,
        )
        assert measured(run.cost) == Forecast(0, Traffic())
        assert run.results["ada"].totals[0].shares == 1

    @pytest.mark.parametrize(
        ("words", "shares", "fault"), [(3, 1, "wrong length"), (None, 2, "number of parties")]
    )
    def test_invalid_totals_are_refused(self, words: int | None, shares: int, fault: str) -> None:
        """A client refuses totals of another length, or of too many parties."""
        with pytest.raises(RunFailed, match=fault):
            ProtocolRunner("simulated")(
                release_by_owner,
                ("server", "ada"),
                own=[rows_of(MIXED), None],
                adversaries={"server": Wrong(words, shares)},
                parameters=bound(Release(trusted=True), 1),
                seed=1,
            )


def test_parties_with_other_parameters_open_nothing() -> None:
    """Masks depend on the plan: a party with another epsilon ends the sum, with suspects named."""
    plans = [bound(Release(epsilon=epsilon)) for epsilon in (1.0, 1.0, 1.0, 1.0, 2.0)]
    with pytest.raises(RunFailed) as failed:
        ProtocolRunner("simulated")(
            release_rows,
            NAMES,
            own=dealt(),
            only={name: {"parameters": plan} for name, plan in zip(NAMES, plans, strict=True)},
            client="party-0",
            seed=1,
        )
    assert isinstance(failed.value.root, Tampered)


@dataclass(frozen=True, slots=True)
class Halves(Statistic[GridClassifier]):
    """The count of each class in each half of the first feature.

    Attributes:
        classes: The names of the classes.
        adds: The contribution of a row; the stated bound is 1.
    """

    classes: tuple[str, ...]
    adds: int = 1

    @property
    @override
    def length(self) -> int:
        return 2 * len(self.classes)

    @property
    @override
    def bound(self) -> Bound:
        return Bound("l1", 1)

    @override
    def entries(self, rows: Floats, labels: Ints) -> Entries:
        half = (rows[:, :1] >= 0.5).astype(np.int64)
        return Entries(
            half * len(self.classes) + labels[:, None], np.full((len(rows), 1), self.adds)
        )

    @override
    def decode(self, noisy: Ints, deviation: float) -> GridClassifier:
        shares = np.maximum(noisy.reshape(2, -1), deviation)
        return GridClassifier(self.classes, 1, 2, np.log(shares / shares.sum(1, keepdims=True)))


class ReleaseHalves(Release):
    """A release of a custom statistic."""

    adds: int = 1

    @override
    def own_statistic(self, features: Features, rows: int) -> Halves:
        return Halves(features.classes, self.adds)


class TestOwnStatistic:
    """A custom statistic."""

    FEATURES = schema(1, classes=2)

    def parts(self) -> list[Rows]:
        """Return rows whose class is the half in which they are."""
        places = np.random.default_rng(3).random((300, 1))
        labels = (places[:, 0] >= 0.5).astype(np.int64)
        return [Rows(places[n::3], labels[n::3]) for n in range(3)]

    def test_an_own_statistic_is_released_like_built_in_ones(
        self, run_protocol: ProtocolRunner
    ) -> None:
        """It labels queries at its forecast, and is pure because it has an L1 bound."""
        system = ReleaseHalves()
        parameters = system.bind(facts_of(self.FEATURES, 3, 300))
        assert parameters.plan.delta == 0.0
        run = run_protocol(
            release_rows,
            NAMES[:3],
            own=self.parts(),
            client="party-0",
            parameters=parameters,
            seed=5,
        )
        found = run.results["party-2"].model.predict(np.array([[0.1], [0.9]]))
        assert found.tolist() == [0, 1]
        forecast = system.forecast(parties=3, queries=1, features=self.FEATURES, rows=300)
        assert measured(run.cost) == forecast

    def test_rows_beyond_its_bound_end_the_release_before_sending(self) -> None:
        """A mistake in the statistic causes an error, not a false guarantee."""
        parameters = ReleaseHalves(adds=2).bind(facts_of(self.FEATURES, 3, 300))
        with pytest.raises(RunFailed, match="a row exceeds the stated L1 bound"):
            ProtocolRunner("simulated")(
                release_rows,
                NAMES[:3],
                own=self.parts(),
                client="party-0",
                parameters=parameters,
                seed=5,
            )

    def test_an_l2_bound_needs_a_delta(self) -> None:
        """An L2 bound needs a δ, because its noise is Gaussian."""

        class Longer(Halves):
            @property
            @override
            def bound(self) -> Bound:
                return Bound("l2", 1)

        class ReleaseLonger(Release):
            @override
            def own_statistic(self, features: Features, rows: int) -> Halves:
                return Longer(features.classes)

        with pytest.raises(InputError, match="needs a delta above 0"):
            ReleaseLonger(delta=0.0).bind(facts_of(self.FEATURES, 3, 300))


class TestRefusals:
    """Refusals before anything is sent."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"epsilon": 0.0}, "epsilon is 0"),
            ({"epsilon": 1e4}, "epsilon is 10000"),
            ({"delta": -1e-5}, "delta is -1e-05"),
            ({"delta": 0.5}, "delta is 0.5"),
            ({"tolerated": -1}, "tolerated is -1"),
            ({"statistic": "median"}, "statistic is 'median'"),
        ],
    )
    def test_an_invalid_parameter_is_named(self, given: dict[str, Any], message: str) -> None:
        """The message has the parameter and its value."""
        with pytest.raises(InputError, match=message):
            Release(**given)

    def test_too_few_parties_are_refused(self) -> None:
        """Two parties would learn each other's sum, and coalitions of all leave no noise."""
        with pytest.raises(InputError, match="at least 3, or `trusted = true`"):
            bound(Release(), 2)
        with pytest.raises(InputError, match="no share of the noise"):
            bound(Release(tolerated=5))

    def test_a_discriminant_has_no_pure_release(self) -> None:
        """Its bound is in the L2 norm."""
        with pytest.raises(InputError, match="choose a delta above 0"):
            bound(Release(statistic="lda", delta=0.0))

    def test_the_number_of_rows_must_be_declared(self) -> None:
        """If it is unknown, the error names the missing key."""
        with pytest.raises(InputError, match="give `rows`"):
            Release().forecast(queries=1, features=4)
        with pytest.raises(InputError, match="rows is 0; allowed: a whole number of at least 1"):
            Release().forecast(queries=1, features=4, rows=0)
        assert Release().forecast(queries=1, features=4, rows=90).rounds

    def test_a_class_that_is_not_public_is_refused(self) -> None:
        """Rows are checked before keys are sent."""
        parts = dict(zip(NAMES, dealt(), strict=True))
        odd = Rows(parts["party-0"].features, parts["party-0"].labels + 3)
        facts = facts_of(MIXED, 5, ROWS)
        with pytest.raises(InputError, match="labels must be below 3"):
            Release().setup(parts | {"party-0": odd}, facts)

    def test_a_number_of_parties_other_than_planned_is_refused(self) -> None:
        """A number of parties other than planned is refused: the noise shares depend on it."""
        with pytest.raises(RunFailed, match="planned for 5 parties, but 4 take part"):
            ProtocolRunner("simulated")(
                release_rows,
                NAMES[:4],
                own=dealt()[:4],
                client="party-0",
                parameters=bound(Release()),
                seed=1,
            )

    def test_too_few_totals_are_refused(self) -> None:
        """A release of two sums needs two totals."""
        with pytest.raises(InputError, match="there are 1 totals; the release has 2 sums"):
            released_by(bound(RELEASES["lda"]), [Total(np.zeros(7, np.int64), 5)])


class TestPromise:
    """The guarantee and the spent budget are those of the system."""

    def test_fewer_than_half_of_the_parties_may_collude_by_default(self) -> None:
        """The number is in the guarantee."""
        assert "at most 3 of the 8 collude" in Release().promise(parties=8).threat_model
        assert Release().trust_among(8) == Trust(8, 3)
        assert Release(tolerated=6).trust_among(8) == Trust(8, 6)
        assert Release(tolerated=0).trust_among(8) == Trust(8, 1)  # it knows its own share
        assert Release(trusted=True).trust_among(8) == Trust(1, 0)

    def test_a_release_is_charged_once_for_any_number_of_queries(self) -> None:
        """All queries are one batch, and a second release adds to the first."""
        parts = dict(zip(NAMES, dealt(), strict=True))
        setup = Release().setup(parts, facts_of(MIXED, 5, ROWS))
        assert len(setup.batches(np.zeros((100_000, len(MIXED))))) == 1
        assert setup.spent(1) == Spent(1.0, 1e-5, 1, "release")
        twice = setup.spent(2).epsilon
        assert twice is not None
        assert 1.3 < twice < 2.0

    def test_a_batch_is_labelled_with_the_parties_own_steps(self) -> None:
        """At a large epsilon the model in one process labels like that of a network."""
        parts = dict(zip(NAMES, dealt(), strict=True))
        system = Release(epsilon=500.0, statistic="counts")
        setup = system.setup(parts, facts_of(MIXED, 5, ROWS))
        queries = rows_of(MIXED).features
        found = play(ProtocolRunner("memory"), system).results["party-0"].model.predict(queries)
        np.testing.assert_array_equal(setup.label(queries, np.random.default_rng(1)), found)


def dealt_to(names: Sequence[str]) -> dict[str, Rows]:
    """Deal rows to parties with the given names."""
    rows = rows_of(MIXED)
    n = len(names)
    return {name: Rows(rows.features[i::n], rows.labels[i::n]) for i, name in enumerate(names)}


def test_a_batch_can_be_played_by_the_remaining_parties() -> None:
    """The noise is planned again for the remaining parties, if there are at least three."""
    setup = Release().setup(dealt_to(NAMES), facts_of(MIXED, 5, ROWS))
    assert setup.can_do_with(NAMES[:3])
    assert not setup.can_do_with(NAMES[:2])
    plan = setup.play(np.zeros((1, len(MIXED))), among=NAMES[:3]).public["parameters"].plan
    assert plan.trust == Trust(3, 1)
