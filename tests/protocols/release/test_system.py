"""Release as a system: equal everywhere, at its forecast, charged before sending; refusals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.outcomes import measured
from tests.protocols.dropout_worlds import Lie, add_one
from tests.protocols.release.schemas import MIXED, draw_rows, facts_of, schema

from veilring import simulation
from veilring.data.table import Features, Rows
from veilring.errors import InputError, ProtocolViolation, RunFailed, SessionAborted, Tampered
from veilring.nodes.adversary import Silent
from veilring.nodes.cluster import Cluster
from veilring.nodes.journal import Traffic
from veilring.nodes.run import Outcome, Run, blamed_party
from veilring.nodes.runtimes import Simulated
from veilring.protocols.masks import (
    KEYS_AT_ONCE,
    MaskedTotals,
    MaskedWords,
    MaskKey,
    neighbours_each_side,
)
from veilring.protocols.promise import Forecast, Spent
from veilring.protocols.release.algorithm.noise import Account, Trust
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
IN_MEMORY, SIMULATED = ProtocolRunner("memory"), ProtocolRunner("simulated")
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


def play(
    runner: ProtocolRunner,
    system: Release | ReleaseParameters,
    adding: Adding = "all-to-all",
    *,
    own: Sequence[Rows] | None = None,
    **given: Any,
) -> Run[Released]:
    """Have all parties release, with their rows and other arguments of the runner."""
    parts = dealt() if own is None else own
    parameters = bound(system) if isinstance(system, Release) else system
    public: dict[str, Any] = {"client": "party-2", "seed": 11} | given
    public |= {"parameters": parameters, "adding": adding}
    return runner(release_rows, NAMES[: len(parts)], own=parts, **public)


def three_parts(features: Features) -> list[Rows]:
    """Return three, two and one rows."""
    return [rows_of(features, count) for count in (3, 2, 1)]


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
        run, here = play(run_protocol, system), play(IN_MEMORY, system)
        assert run.transcript == here.transcript
        expected = here.results["party-0"]
        assert all(the_same(released, expected) for released in run.results.values())
        assert measured(run.cost) == release_cost(5, bound(system), "all-to-all")
        forecast = system.forecast(parties=5, queries=9, features=MIXED, rows=ROWS)
        assert measured(run.cost) == forecast

    @released_as
    def test_a_star_has_its_forecast_and_the_same_totals(self, name: str) -> None:
        """Its cost has the confirmation; each party draws its noise, however sums are added up."""
        system = RELEASES[name]
        run, here = play(IN_MEMORY, system, "star"), play(IN_MEMORY, system)
        expected = here.results["party-0"]
        assert all(the_same(released, expected) for released in run.results.values())
        assert measured(run.cost) == release_cost(5, bound(system), "star")

    def test_a_star_is_equal_on_every_runtime(self, run_protocol: ProtocolRunner) -> None:
        """Its transcript is that in memory."""
        there, here = (play(each, RELEASES["lda"], "star") for each in (run_protocol, IN_MEMORY))
        assert there.transcript == here.transcript

    def test_totals_larger_than_a_frame_are_sent_in_pieces(self) -> None:
        """Each piece is a separate masked sum, and the pieces form the whole."""
        features = schema(300, classes=450)
        system = Release(statistic="means", delta=0.0)
        parameters = system.bind(facts_of(features, 3, 6))
        assert PIECE_WORDS < 300 * 450 < 2 * PIECE_WORDS
        run = play(SIMULATED, parameters, own=three_parts(features))
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
        parts = three_parts(features)
        parameters = system.bind(facts_of(features, 3, 6))
        run = play(SIMULATED, parameters, own=parts, seed=3)
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


def last_words(at: int) -> Lie:
    """Return a party that changes its words of the last sum, in a round, for one party."""
    return Lie((MaskedWords, MaskedTotals), add_one, to=("party-1",), first_round=at)


@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("name", ["pure means", "lda"])
def test_parties_with_different_models_notice(name: str, adding: Adding) -> None:
    """A liar in the last sum leaves no two honest parties with different totals."""
    parameters = bound(RELEASES[name])
    last = release_cost(5, parameters, adding).rounds - 1
    liar = "party-2" if adding == "star" else "party-4"
    with pytest.raises(RunFailed) as failed:
        play(SIMULATED, parameters, adding, adversaries={liar: last_words(last)})
    found = [error for name, error in failed.value.errors.items() if name != liar]
    assert found
    assert all(isinstance(each, Tampered | ProtocolViolation | SessionAborted) for each in found)


def release_with_silence(
    system: Release, silent: str, parties: int, adding: Adding, first: int
) -> Run[Any]:
    """Release one row of each party, of which one is silent from a round on."""
    parameters = system.bind(facts_of(Features.of_numbers(2, 2), parties, parties))
    own = [Rows(np.array([[0.2, 0.3]]), np.array([0]))] * parties

    async def release() -> Run[Any]:
        async with Cluster(parties, runtime=Simulated(), own=own, seed=1) as cluster:
            return await cluster.run(
                release_rows,
                client="party-0",
                parameters=parameters,
                adding=adding,
                adversaries={silent: Silent(first_round=first)},
            )

    return simulation.simulate(release())


def assert_blamed(silent: int, parties: int, tolerated: int, adding: Adding, first: int) -> None:
    """A party that is silent from a round on is blamed."""
    name, system = f"party-{silent}", Release(statistic="means", tolerated=tolerated)
    with pytest.raises(RunFailed) as failed:
        release_with_silence(system, name, parties, adding, first)
    assert blamed_party(failed.value) == name


@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_silent_party_is_blamed(adding: Adding, first: int) -> None:
    """It is blamed in the agreement on keys, in each sum and in the confirmation.

    It has more neighbours than one group, and a party that waits for it sends the next nothing.
    """
    assert 2 * (neighbours_each_side(20, 1) or 0) > KEYS_AT_ONCE
    for silent in (0, 7, 19):
        assert_blamed(silent, 20, 1, adding, first)


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
        assert_blamed(silent, parties, tolerated, adding, first)


@pytest.mark.slow
@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("first", [0, 1, 4, 5])
def test_a_release_that_may_lose_some_blames_no_honest_party(adding: Adding, first: int) -> None:
    """A party that falls silent in a round is lost, and only the silent client ends the release."""

    def release(silent: str) -> Run[Any]:
        system = Release(statistic="means", tolerated=1, lost=2)
        return release_with_silence(system, silent, 8, adding, first)

    for silent in (f"party-{number}" for number in range(1, 8)):
        assert release(silent).lost == (silent,)
    with pytest.raises(RunFailed) as failed:
        release("party-0")
    assert blamed_party(failed.value) in {"party-0", ""}  # nobody, if it gave up the others first


def test_parties_that_may_lose_some_notice_different_models() -> None:
    """In a star, each party names the client that sent one of them other totals, or both ends."""
    parameters = bound(RELEASES["with losses"])
    lie = last_words(release_cost(5, parameters, "star").rounds - 1)
    with pytest.raises(RunFailed) as failed:
        play(SIMULATED, parameters, "star", adversaries={"party-2": lie})
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
        play(SIMULATED, parameters, only={"party-1": {"charge": till}})
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


def by_owner(
    runner: ProtocolRunner, parameters: ReleaseParameters | None = None, **given: Any
) -> Run[Released]:
    """Have an owner release its rows to a client."""
    own = [rows_of(MIXED), None]
    parameters = parameters or bound(Release(trusted=True), 1)
    return runner(release_by_owner, ("server", "ada"), own=own, parameters=parameters, **given)


class TestOwner:
    """An owner that holds all rows, and its client."""

    @released_as
    def test_an_owner_releases_equally_everywhere(
        self, run_protocol: ProtocolRunner, name: str
    ) -> None:
        """The client has the owner's totals and its model, at the closed form's cost."""
        parameters = bound(RELEASES[name].model_copy(update={"trusted": True}), 1)
        there, here = (by_owner(each, parameters) for each in (run_protocol, IN_MEMORY))
        assert there.transcript == here.transcript
        assert the_same(there.results["ada"], here.results["server"])
        assert measured(there.cost) == owner_cost(parameters)

    def test_an_owner_alone_needs_no_message(self) -> None:
        """The role of peers, played by one party, adds its noise and sends nothing."""
        parameters = bound(Release(trusted=True), 1)
        run = play(SIMULATED, parameters, own=[rows_of(MIXED)])
        assert measured(run.cost) == Forecast(0, Traffic())
        assert run.results["party-0"].totals[0].shares == 1

    @pytest.mark.parametrize(
        ("words", "shares", "fault"), [(3, 1, "wrong length"), (None, 2, "number of parties")]
    )
    def test_invalid_totals_are_refused(self, words: int | None, shares: int, fault: str) -> None:
        """A client refuses totals of another length, or of too many parties."""

        def lie(message: ReleasedWords) -> ReleasedWords:
            return ReleasedWords(shares=shares, words=message.words[:words])

        with pytest.raises(RunFailed, match=fault):
            by_owner(SIMULATED, adversaries={"server": Lie(ReleasedWords, lie)})


def test_parties_with_other_parameters_open_nothing() -> None:
    """Masks depend on the plan: a party with another epsilon ends the sum, with suspects named."""
    plans = {
        name: {"parameters": bound(Release(epsilon=1.0 + (name == "party-4")))} for name in NAMES
    }
    with pytest.raises(RunFailed) as failed:
        SIMULATED(release_rows, NAMES, own=dealt(), only=plans, client="party-0", seed=1)
    assert isinstance(failed.value.root, Tampered)


class TestRefusals:
    """Refusals before anything is sent."""

    @pytest.mark.parametrize(
        ("given", "parties", "message"),
        [
            ({"epsilon": 0.0}, 5, "epsilon is 0"),
            ({"epsilon": 1e4}, 5, "epsilon is 10000"),
            ({"delta": -1e-5}, 5, "delta is -1e-05"),
            ({"delta": 0.5}, 5, "delta is 0.5"),
            ({"tolerated": -1}, 5, "tolerated is -1"),
            ({"tolerated": 5}, 5, "no share of the noise"),
            ({"statistic": "median"}, 5, "statistic is 'median'"),
            ({"statistic": "lda", "delta": 0.0}, 5, "choose a delta above 0"),
            ({}, 2, "at least 3, or `trusted = true`"),
        ],
    )
    def test_an_invalid_parameter_is_named(
        self, given: dict[str, Any], parties: int, message: str
    ) -> None:
        """The message has the parameter and its value, or the remedy."""
        with pytest.raises(InputError, match=message):
            bound(Release(**given), parties)

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
            play(SIMULATED, bound(Release()), own=dealt()[:4])

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
        setup = Release().setup(dealt_to(NAMES), facts_of(MIXED, 5, ROWS))
        assert len(setup.batches(np.zeros((100_000, len(MIXED))))) == 1
        assert setup.spent(1) == Spent(1.0, 1e-5, 1, "release")
        twice = setup.spent(2).epsilon
        assert twice is not None
        assert 1.3 < twice < 2.0

    def test_a_batch_is_labelled_with_the_parties_own_steps(self) -> None:
        """At a large epsilon the model in one process labels like that of a network."""
        parts, system = (
            dict(zip(NAMES, dealt(), strict=True)),
            Release(epsilon=500.0, statistic="counts"),
        )
        setup = system.setup(parts, facts_of(MIXED, 5, ROWS))
        queries = rows_of(MIXED).features
        found = play(IN_MEMORY, system).results["party-0"].model.predict(queries)
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
