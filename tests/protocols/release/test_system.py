"""Release as a system: equal everywhere, at its forecast, charged before sending; refusals."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.protocols.dropout_worlds import Lie, add_one
from tests.protocols.release.schemas import MIXED, draw_rows, facts_of, schema, scores_of

from veilring import simulation
from veilring.arrays import Floats, Ints
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
from veilring.transport.frames import CONTENT_BYTES_MAX

NAMES = [f"party-{n}" for n in range(5)]
ROWS = 150
FACTS = facts_of(MIXED, 5, ROWS)
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


def dealt(parties: int = 4) -> list[Rows]:
    """Deal rows to some parties; one more has none."""
    rows = rows_of(MIXED)
    parts = [Rows(rows.features[n::parties], rows.labels[n::parties]) for n in range(parties)]
    return [*parts, Rows(np.zeros((0, len(MIXED))), np.zeros(0, np.int64))]


PARTS = dict(zip(NAMES, dealt(), strict=True))


def bound(system: Release, parties: int = 5, features: Features = MIXED) -> ReleaseParameters:
    """Return the parameters of a release among some parties."""
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
    return runner(release_rows, [f"party-{n}" for n in range(len(parts))], own=parts, **public)


def three_parts(features: Features) -> list[Rows]:
    """Return three, two and one rows."""
    return [rows_of(features, count) for count in (3, 2, 1)]


def the_same(released: Released, other: Released) -> bool:
    """Return whether two releases are equal in every number, and label rows alike."""
    rows = rows_of(MIXED).features
    return all(
        np.array_equal(one.sums, two.sums) and one.shares == two.shares
        for one, two in zip(released.totals, other.totals, strict=True)
    ) and np.array_equal(scores_of(released.model, rows), scores_of(other.model, rows))


@pytest.mark.parametrize(
    ("name", "adding"), [*((name, "all-to-all") for name in RELEASES), ("lda", "star")]
)
def test_a_release_is_equal_everywhere_at_its_forecast(
    run_protocol: ProtocolRunner, name: str, adding: Adding
) -> None:
    """Totals, models and transcripts equal those in memory, at the closed form's cost."""
    system = RELEASES[name]
    run, here = play(run_protocol, system, adding), play(IN_MEMORY, system, adding)
    assert run.transcript == here.transcript
    expected = here.results["party-0"]
    assert all(the_same(released, expected) for released in run.results.values())
    assert Forecast.measured(run.cost) == release_cost(5, bound(system), adding)


@released_as
def test_a_star_has_the_same_totals(name: str) -> None:
    """Each party draws its noise, however sums are added up, and a star has a confirmation."""
    system = RELEASES[name]
    run, here = (play(IN_MEMORY, system, adding) for adding in ("star", "all-to-all"))
    expected = here.results["party-0"]
    assert all(the_same(released, expected) for released in run.results.values())
    assert Forecast.measured(run.cost) == release_cost(5, bound(system), "star")
    forecast = system.forecast(parties=5, queries=9, features=MIXED, rows=ROWS)
    assert Forecast.measured(here.cost) == forecast


def test_totals_larger_than_a_frame_are_sent_in_pieces() -> None:
    """Each piece is a separate masked sum, and the pieces form the whole."""
    features = schema(300, classes=450)
    parameters = Release(statistic="means", delta=0.0).bind(facts_of(features, 3, 6))
    assert CONTENT_BYTES_MAX < 8 * 301 * 450 < 2 * CONTENT_BYTES_MAX
    run = play(SIMULATED, parameters, own=three_parts(features))
    assert Forecast.measured(run.cost) == release_cost(3, parameters, "all-to-all")
    assert run.cost.rounds == 3
    assert run.results["party-1"].totals[0].sums.shape == (301 * 450,)


def is_whole(noise: Floats | Ints, deviation: float, most: float) -> bool:
    """Return whether the mean square of noise is within 6 of its deviations of the stated one."""
    squares = np.square(noise / deviation)
    spread = float(squares.std() / np.sqrt(squares.size))
    return bool(abs(squares.mean() - 1) < 6 * spread < most)


@pytest.mark.parametrize(
    ("system", "columns"),
    [(Release(statistic="lda"), 100), (Release(statistic="counts", delta=0.0), 700)],
    ids=["gaussian", "pure"],
)
def test_every_party_adds_its_whole_share_of_the_noise(system: Release, columns: int) -> None:
    """The mean squared noise of the totals of three parties is that of three whole shares.

    If one share were halved, it would be 3/4, and without one share 2/3. It is within 6 of its
    standard deviations, which a right one exceeds with a probability below 1e-8.
    """
    features = schema(columns, classes=4)
    parts, parameters = three_parts(features), system.bind(facts_of(features, 3, 6))
    run = play(SIMULATED, parameters, own=parts, seed=3)
    totals, steps = run.results["party-1"].totals, release_steps(parameters)
    step = next(steps)
    for total in totals[:-1]:
        step = steps.send(total)
    exact = sum(step.statistic.sum(part.features, part.labels) for part in parts)
    assert is_whole(totals[-1].sums - exact, parameters.noises[-1].deviation(), 0.2)


def test_a_simulation_draws_the_noise_of_all_parties() -> None:
    """Over 60 releases the mean squared noise is within 6 deviations of its expectation."""
    parameters, rng, rows = bound(RELEASES["trees"]), np.random.default_rng(2), rows_of(MIXED)
    exact = parameters.main().sum(rows.features, rows.labels)
    drawn = [
        simulate_release(dealt(), parameters, rng.spawn(5)).totals[-1].sums - exact
        for _ in range(60)
    ]
    # A Laplace number's square has a deviation of the root of 5; of Pólya shares it is a little
    # more, and 6 deviations of a mean are passed with a probability below 1e-8.
    assert is_whole(np.array(drawn), parameters.noises[-1].deviation(), 0.3)


@pytest.mark.parametrize(
    ("name", "adding"),
    [
        *((name, adding) for name in ("pure means", "lda") for adding in SUMS),
        ("with losses", "star"),
    ],
)
def test_parties_with_different_models_notice(name: str, adding: Adding) -> None:
    """A liar in the last sum leaves no two honest parties with different totals.

    In a star with losses, each party names the client that sent one of them other totals, or both
    ends.
    """
    parameters = bound(RELEASES[name])
    last = release_cost(5, parameters, adding).rounds - 1
    liar = "party-2" if adding == "star" else "party-4"
    lie = Lie((MaskedWords, MaskedTotals), add_one, to=("party-1",), first_round=last)
    with pytest.raises(RunFailed) as failed:
        play(SIMULATED, parameters, adding, adversaries={liar: lie})
    found = [error for name, error in failed.value.errors.items() if name != liar]
    assert found
    assert all(isinstance(each, Tampered | ProtocolViolation | SessionAborted) for each in found)
    if name == "with losses":
        assert len(found) == 4
        for error in found:
            if isinstance(error, Tampered):
                assert liar in error.suspects
                assert len(error.suspects) == 2
            elif isinstance(error, ProtocolViolation):
                assert error.culprit == liar


def test_parties_with_other_parameters_open_nothing() -> None:
    """Masks depend on the plan: a party with another epsilon ends the sum, with suspects named."""
    plans = {
        name: {"parameters": bound(Release(epsilon=1.0 + (name == "party-4")))} for name in NAMES
    }
    with pytest.raises(RunFailed) as failed:
        SIMULATED(release_rows, NAMES, own=dealt(), only=plans, client="party-0", seed=1)
    assert isinstance(failed.value.root, Tampered)


def play_with_silence(
    system: Release, silent: str, parties: int, adding: Adding, first: int
) -> Run[Released]:
    """Release one row of each party, of which one is silent from a round on."""
    parameters = system.bind(facts_of(Features.of_numbers(2, 2), parties, parties))
    own = [Rows(np.array([[0.2, 0.3]]), np.array([0]))] * parties
    adversaries = {silent: Silent(first_round=first)}
    given = {"client": "party-0", "seed": 1, "adversaries": adversaries}
    return play(SIMULATED, parameters, adding, own=own, **given)


@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize(
    ("parties", "tolerated", "first"),
    [
        *((20, 1, first) for first in range(4)),
        *(pytest.param(40, 3, first, marks=pytest.mark.slow) for first in (0, 1, 3)),
        pytest.param(60, 12, 0, marks=pytest.mark.slow),
    ],
)
def test_a_silent_party_is_blamed(parties: int, tolerated: int, adding: Adding, first: int) -> None:
    """It is blamed in the agreement on keys, in each sum and in the confirmation.

    It has more neighbours than one group, and a party that waits for it sends the next nothing.
    """
    assert 2 * (neighbours_each_side(20, 1) or 0) > KEYS_AT_ONCE
    system = Release(statistic="means", tolerated=tolerated)
    for number in (0, 7, parties - 1):
        with pytest.raises(RunFailed) as failed:
            play_with_silence(system, f"party-{number}", parties, adding, first)
        assert blamed_party(failed.value) == f"party-{number}"


@pytest.mark.slow
@pytest.mark.parametrize("adding", SUMS)
@pytest.mark.parametrize("first", [0, 1, 4, 5])
def test_a_release_that_may_lose_some_blames_no_honest_party(adding: Adding, first: int) -> None:
    """A party that falls silent in a round is lost, and only the silent client ends the release."""
    system = Release(statistic="means", tolerated=1, lost=2)
    for silent in (f"party-{number}" for number in range(1, 8)):
        assert play_with_silence(system, silent, 8, adding, first).lost == (silent,)
    with pytest.raises(RunFailed) as failed:
        play_with_silence(system, "party-0", 8, adding, first)
    assert blamed_party(failed.value) in {"party-0", ""}  # nobody, if it gave up the others first


@pytest.mark.parametrize("seed", range(12))
def test_a_third_of_twelve_parties_may_crash_at_any_time(seed: int) -> None:
    """All remaining parties have one release, of the rows that arrived."""
    rng, parts = np.random.default_rng(seed), dealt(12)[:12]
    gone = rng.choice(np.arange(1, 12), 4, replace=False)
    at = rng.uniform(0.0, 0.08, 4)  # set-up ends after 30 ms
    faults = [Fault("crash", t, t, (f"party-{n}",)) for n, t in zip(gone, at, strict=True)]
    links = Topology(LinkModel(latency=Constant(0.01)))
    # With almost no noise.
    parameters = bound(Release(epsilon=900.0, statistic="counts", tolerated=1, lost=4), 12)

    async def release() -> Run[Released]:
        async with Cluster(12, runtime=Simulated(links, faults), own=parts, seed=2) as cluster:
            return await cluster.run(release_rows, client="party-0", parameters=parameters)

    first, *others = simulation.simulate(release()).results.values()
    assert all(the_same(first, other) for other in others)
    (total,) = first.totals
    assert 8 <= total.shares <= 12
    # Each row is one count in each of the table's columns.
    columns = 4
    counted = total.sums.sum() / columns
    sizes = np.array([len(part) for part in parts])
    missing = int(sizes.max()) * (12 - total.shares)
    assert counted == pytest.approx(int(sizes.sum()), abs=missing + 1)


def test_a_whole_release_is_charged_once() -> None:
    """Two sums are one charge, of the whole account."""
    charged, parameters = list[Account](), bound(RELEASES["lda"])
    play(SIMULATED, parameters, only={"party-1": {"charge": charged.append}})
    assert charged == [parameters.account]
    assert charged[0].epsilon(1e-5) <= 1.0


def test_a_party_that_cannot_pay_sends_nothing_about_its_rows() -> None:
    """A party whose till refuses has sent keys, but no masked words."""

    def refuse(_account: Account) -> None:
        raise InputError.because("nothing is left", field="key")

    async def refused() -> list[Outcome]:
        async with Cluster(NAMES, runtime=Simulated(), own=dealt(), seed=1) as cluster:
            return await cluster.play(
                release_rows,
                watch=NAMES,
                only={"party-1": {"charge": refuse}},
                client="party-0",
                parameters=bound(RELEASES["lda"]),
            )

    view = simulation.simulate(refused())[1].view
    assert view is not None
    kinds = {type(seen.message) for seen in view.sent}
    assert MaskKey in kinds
    assert MaskedWords not in kinds


def by_owner(runner: ProtocolRunner, parameters: ReleaseParameters, **given: Any) -> Run[Released]:
    """Have an owner release its rows to a client."""
    own = [rows_of(MIXED), None]
    return runner(release_by_owner, ("server", "ada"), own=own, parameters=parameters, **given)


@released_as
def test_an_owner_releases_equally_everywhere(run_protocol: ProtocolRunner, name: str) -> None:
    """The client has the owner's totals and its model, at the closed form's cost."""
    parameters = bound(RELEASES[name].model_copy(update={"trusted": True}), 1)
    there, here = (by_owner(each, parameters) for each in (run_protocol, IN_MEMORY))
    assert there.transcript == here.transcript
    assert the_same(there.results["ada"], here.results["server"])
    assert Forecast.measured(there.cost) == owner_cost(parameters)


def test_an_owner_alone_needs_no_message() -> None:
    """The role of peers, played by one party, adds its noise and sends nothing."""
    run = play(SIMULATED, bound(Release(trusted=True), 1), own=[rows_of(MIXED)], client="party-0")
    assert Forecast.measured(run.cost) == Forecast(0, Traffic())
    assert run.results["party-0"].totals[0].shares == 1


@pytest.mark.parametrize(
    ("words", "shares", "fault"), [(3, (1,), "words is int64"), (None, (2,), "number of parties")]
)
def test_invalid_totals_are_refused(words: int | None, shares: tuple[int, ...], fault: str) -> None:
    """A client refuses totals of another length, or of too many parties."""

    def lie(message: ReleasedWords) -> ReleasedWords:
        return ReleasedWords(shares=shares, words=message.words[:words])

    parameters = bound(Release(trusted=True), 1)
    with pytest.raises(RunFailed, match=fault):
        by_owner(SIMULATED, parameters, adversaries={"server": Lie(ReleasedWords, lie)})


@pytest.mark.parametrize(
    ("given", "parties", "message"),
    [
        ({"epsilon": 0.0}, 5, "epsilon is 0"),
        ({"epsilon": 1e4}, 5, "epsilon is 10000"),
        ({"delta": -1e-5}, 5, "delta is -1e-05"),
        ({"delta": 0.5}, 5, "delta is 0.5"),
        ({"tolerated": -1}, 5, "tolerated is -1"),
        ({"tolerated": 5}, 5, "no share of the noise"),
        ({"lost": 4, "tolerated": 4}, 8, "no share of the noise"),
        ({"statistic": "median"}, 5, "statistic is 'median'"),
        ({"statistic": "lda", "delta": 0.0}, 5, "choose a delta above 0"),
        ({}, 2, "at least 3, or `trusted = true`"),
    ],
)
def test_an_invalid_parameter_is_named(given: dict[str, Any], parties: int, message: str) -> None:
    """The message has the parameter and its value, or the remedy."""
    with pytest.raises(InputError, match=message):
        bound(Release(**given), parties)


FORECAST = partial(Release().forecast, queries=1, features=4)
OF_FOUR = Rows(PARTS["party-0"].features, PARTS["party-0"].labels + 3)
UNPLANNED: dict[str, Callable[[], object]] = {
    "give `rows`": FORECAST,
    "rows is 0; allowed: a whole number of at least 1": partial(FORECAST, rows=0),
    "labels must be below 3": partial(Release().setup, PARTS | {"party-0": OF_FOUR}, FACTS),
    "planned for 5 parties, but 4 take part": partial(
        play, SIMULATED, bound(Release()), own=dealt()[:4]
    ),
    "there are 1 totals; the release has 2 sums": partial(
        released_by, bound(RELEASES["lda"]), [Total(np.zeros(7, np.int64), 5)]
    ),
}


@pytest.mark.parametrize("message", UNPLANNED)
def test_what_a_release_was_not_planned_for_is_refused(message: str) -> None:
    """Rows that are not counted or not of a public class, and other parties or totals."""
    with pytest.raises((InputError, RunFailed), match=message):
        UNPLANNED[message]()


def test_fewer_than_half_of_the_parties_may_collude_by_default() -> None:
    """The number is in the guarantee; losses add noise, and colluders must not open a sum."""
    for system, trust in (
        (Release(), Trust(8, 3)),
        (Release(tolerated=6), Trust(8, 6)),
        (Release(tolerated=0), Trust(8, 1)),  # it knows its own share
        (Release(trusted=True), Trust(1, 0)),
        (Release(lost=2), Trust(8, 3, 2)),
    ):
        assert system.trust_among(8) == trust
    assert "at most 3 of the 8 collude" in Release().promise(parties=8).threat_model
    promise = Release(lost=2).promise(parties=8)
    assert "at most 2 drop out" in promise.threat_model
    assert "client" not in promise.note
    for lost in (3, 4):
        named = "a client that colludes could open the sums of two sets of parties"
        assert named in Release(lost=lost).promise(parties=8).note


def test_a_release_is_charged_once_for_any_number_of_queries() -> None:
    """All queries are one batch, and a second release adds to the first.

    It can be played by the remaining parties, if there are three, with noise that is planned again.
    """
    setup = Release().setup(PARTS, FACTS)
    assert len(setup.batches(np.zeros((100_000, len(MIXED))))) == 1
    assert setup.spent(1) == Spent(1.0, 1e-5, 1, "release")
    twice = setup.spent(2).epsilon
    assert twice is not None
    assert 1.3 < twice < 2.0
    assert setup.can_do_with(NAMES[:3])
    assert not setup.can_do_with(NAMES[:2])
    plan = setup.play(np.zeros((1, len(MIXED))), among=NAMES[:3]).public["parameters"].plan
    assert plan.trust == Trust(3, 1)


def test_a_batch_is_labelled_with_the_parties_own_steps() -> None:
    """At a large epsilon the model in one process labels like that of a network."""
    system, queries = Release(epsilon=500.0, statistic="counts"), rows_of(MIXED).features
    found = play(IN_MEMORY, system).results["party-0"].model.predict(queries)
    labels = system.setup(PARTS, FACTS).label(queries, np.random.default_rng(1))
    np.testing.assert_array_equal(labels, found)
