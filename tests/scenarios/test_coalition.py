"""Findings of a scenario's coalition: in a ring, and in the totals of rank search."""

import json
import math
from functools import cache
from itertools import chain, groupby

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.data.table import pairwise_distances
from veilring.errors import ScenarioError
from veilring.nodes import RuntimeName
from veilring.nodes.journal import Journal
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.adversaries import TotalsFindings
from veilring.protocols.ring.algorithm.topk import own_smallest
from veilring.protocols.ring.attacks.findings import Attack, RingFindings, fit_prior
from veilring.protocols.ring.system import PrivateKNN
from veilring.randomness import Streams
from veilring.scenarios import Report, load_scenario, run_scenario
from veilring.scenarios.prepare import prepare

SEED = 5
MEMBERS = ("party-1", "party-3", "party-4", "party-6")
OTHERS = ("party-0", "party-2", "party-5", "party-7", "party-8")
EVERYBODY = tuple(f"party-{n}" for n in range(9))
SETTINGS = ("parties.count=9", "data.queries=12", "protocol.batch=6", "run.leakage_trials=120")
BATCH = 6
FALSE_ALARM = 1e-6
SLOW = pytest.mark.slow


@cache
def _run(
    *more: str, runtime: RuntimeName = "memory", members: tuple[str, ...] = MEMBERS
) -> tuple[Report, tuple[tuple[str, ...], ...]]:
    """Return the report on a run, and each batch's ring order from the trace."""
    journal = Journal()
    scenario = load_scenario("wine", [*SETTINGS, f"parties.coalition={json.dumps(members)}", *more])
    report = run_scenario(scenario, runtime=runtime, seed=SEED, journal=journal)
    rings: dict[str, dict[str, None]] = {}
    for message in journal.messages:
        if message.kind == "ring.topk.vector":
            rings.setdefault(message.session, {})[message.sender] = None
    return report, tuple(tuple(senders) for senders in rings.values())


def _findings(*more: str, members: tuple[str, ...] = MEMBERS) -> RingFindings:
    found = _run(*more, members=members)[0].coalition
    assert isinstance(found, RingFindings)
    return found


def _between(ring: tuple[str, ...], party: str) -> int:
    place = ring.index(party)
    return (ring[place - 1] in MEMBERS) + (ring[(place + 1) % len(ring)] in MEMBERS)


def _gain(attack: Attack) -> int:
    return 2 * attack.right - attack.claims


@pytest.mark.parametrize(
    ("system", "runtime"),
    [
        ("private-knn", "simulated"),
        ("private-knn", "processes"),
        ("rank-search", "simulated"),
        pytest.param("private-knn", "tls", marks=SLOW),
        pytest.param("rank-search", "tls", marks=SLOW),
        pytest.param("rank-search", "processes", marks=SLOW),
    ],
)
def test_findings_are_equal_on_every_runtime_and_in_json(system: str, runtime: str) -> None:
    """A seed gives equal findings to the last digit, and so does a report read from JSON."""
    report, other = (
        _run(f"protocol.name={system}", runtime=each, members=EVERYBODY[1:4])[0]
        for each in ("memory", runtime)
    )
    assert report.coalition is not None
    assert report.coalition == other.coalition
    assert Report.from_json(json.loads(json.dumps(other.as_json(), allow_nan=False))) == other


@SLOW
def test_watching_changes_no_measurement() -> None:
    """Cost, labels and transcript equal those of the same run without a coalition."""
    watched, free = _run()[0], _run(members=())[0]
    assert free.coalition is None
    assert watched.cost == free.cost == watched.forecast
    assert (watched.labels, watched.transcript) == (free.labels, free.transcript)
    assert watched.leakage == free.leakage


@SLOW
class TestVotes:
    """The sandwich attack on the secure sum."""

    def test_exactly_the_parties_between_two_members_are_exposed(self) -> None:
        """The ring order comes from the trace, which the attack does not have.

        Each victim, a neighbour of a member, has the queries of its batches. The sum of each group
        of honest parties between members is recovered. The expectation is c(c-1) / ((n-1)(n-2)) for
        each of n - c parties in each of two batches.
        """
        found, rings = _findings(), _run()[1]
        assert len(rings) == 2
        expected = [party for ring in rings for party in OTHERS if _between(ring, party) == 2]
        assert expected
        assert found.exposed == len(expected)
        beside = {p: BATCH * sum(_between(ring, p) > 0 for ring in rings) for p in OTHERS}
        queries = {victim.party: victim.queries for victim in found.victims}
        assert queries == {party: count for party, count in beside.items() if count}
        for victim in found.victims:
            assert victim.votes == victim.between == BATCH * expected.count(victim.party)
        corrupt = [[party in MEMBERS for party in ring] for ring in rings]
        groups = sum(each[n - 1] and not each[n] for each in corrupt for n in range(len(each)))
        assert found.groups == found.groups_recovered == groups
        assert found.exposure == pytest.approx(4 * 3 / (8 * 7))
        assert found.exposed_expected == pytest.approx(2 * 5 * 4 * 3 / (8 * 7))
        assert found.honest == 2 * 5

    def test_a_party_is_exposed_by_all_of_its_neighbours_only(self) -> None:
        """These are four in two cycles, and all others by shares: eight of nine learn its votes.

        Seven of nine learn the sum of two. In a ring a single party exposes none.
        """
        found = _findings("protocol.sum=cycles", "protocol.cycles=2")
        assert found.exposure == pytest.approx(4 * 3 * 2 * 1 / (8 * 7 * 6 * 5))
        assert found.groups == found.groups_recovered
        seven = _findings("protocol.sum=shares", members=EVERYBODY[2:])
        assert (seven.exposed, seven.exposed_expected) == (0, 0.0)
        assert seven.groups == seven.groups_recovered == 2
        eight = _findings("protocol.sum=shares", members=EVERYBODY[1:])
        assert (eight.exposed, eight.exposed_expected) == (2, 2.0)
        alone = _findings(members=EVERYBODY[:1])
        assert (alone.exposure, alone.exposed) == (0.0, 0)
        assert len(alone.victims) >= 2
        others = _findings(members=EVERYBODY[1:])
        assert (others.exposure, others.exposed) == (1.0, 2)
        assert others.named.named == others.named.values == others.named.guessed

    def test_a_malicious_party_is_not_a_victim(self) -> None:
        """A malicious party is not a victim, because its true inputs are unknown."""
        wrong = '{party-2={kind="wrong-sum", by=3}, party-5={kind="substitute-input"}}'
        found = _findings(f"adversaries={wrong}")
        assert not {victim.party for victim in found.victims} & {"party-2", "party-5"}
        assert found.honest == 2 * 3
        assert found.groups_recovered == found.groups


@SLOW
class TestDistances:
    """The attacks on PP-TopK."""

    def test_a_party_between_two_members_is_read_through_the_noise(self) -> None:
        """The optimal attack gains more than the simple one; with one neighbour it needs trials."""
        for victim in _findings().victims:
            assert victim.optimal is not None
            assert victim.optimal.right <= victim.simple.right
            assert victim.optimal.located <= victim.simple.located <= victim.distances
            if victim.between == victim.queries:
                assert _gain(victim.optimal) > max(0, _gain(victim.simple))
        for victim in _findings("run.leakage_trials=0").victims:
            assert (victim.optimal is None) == (victim.between < victim.queries)

    def test_pinned_distances_match_simulated_runs(self) -> None:
        """Queries are independent: both counts obey Hoeffding's bound, at 1e-6 for all victims."""
        found = _findings()
        share = FALSE_ALARM / (2 * len(found.victims))
        assert any(victim.pinned for victim in found.victims)
        for victim in found.victims:
            observed = math.sqrt(victim.queries * math.log(2 / share) / 2)
            # In each batch each of 6 queries was simulated 20 times.
            simulated = victim.queries * math.sqrt(math.log(2 / share) / (2 * BATCH * 20))
            assert abs(victim.pinned - victim.pinned_expected.value) <= observed + simulated

    def test_the_prior_is_as_dense_as_the_result(self) -> None:
        """Of all rows of all parties, k are expected within the radius."""
        topk = PrivateKNN().bind(Facts(parties=4, features=13, classes=3)).topk
        prior = fit_prior(np.full((3, topk.k), 0.1), parties=4, rows=20, parameters=topk)
        assert 4 * 20 * 0.1 / prior.upper == pytest.approx(topk.k)
        wide = fit_prior(np.full((3, topk.k), topk.upper), parties=4, rows=0, parameters=topk)
        assert (wide.rows_per_party, wide.upper) == (1, topk.upper * 4 / topk.k)


@SLOW
class TestOwners:
    """Owners of the nearest distances, in cases that need no probability.

    With P0 = 0 each party inserts its values at once, so a value is first seen after its owner's
    run of honest parties: its owner is one of that run.
    """

    AT_ONCE = ("protocol.P0=0", "protocol.rounds=1")

    def test_an_owner_is_known_up_to_its_honest_neighbours(self) -> None:
        """The number of owners named is the sum of 1 / length over the values of each run."""
        report, rings = _run(*self.AT_ONCE)
        others = [
            (ring, owner)
            for ring, own in zip(rings, _own_of_batches(report), strict=True)
            for owner in chain(*_nearest(own, ring)[1])
            if owner not in MEMBERS
        ]
        expected = sum(1 / len(_honest_run(ring, owner)) for ring, owner in others)
        found = report.coalition
        assert isinstance(found, RingFindings)
        assert found.named.values == len(others)
        assert found.named.named == pytest.approx(expected)
        assert found.named.guessed == pytest.approx(len(others) / len(OTHERS))
        assert found.named.with_retries == found.named.named
        assert found.named.recurred == 0

    def test_a_failed_attempt_leaves_the_twice_suspected_parties(self) -> None:
        """If a party crashes during the votes, suspects are in the value's run both times."""
        latency = 'network.latency={distribution="constant", seconds=0.1}'
        crash = 'faults=[{kind="crash", party="party-7", start_seconds=1.65}]'
        settings = (*self.AT_ONCE, "protocol.batch=12", "run.retries=1", latency, crash)
        report, (first, second, *_) = _run(*settings, runtime="simulated")
        (own,) = _own_of_batches(report)
        expected, again = 0.0, 0
        for query, (nearest, owners) in enumerate(zip(*_nearest(own, second), strict=True)):
            for value, owner in zip(nearest, owners, strict=True):
                if owner in MEMBERS:
                    continue
                suspects = _honest_run(second, owner)
                until = first.index(_honest_run(first, owner)[-1]) + 1
                before = np.concatenate([own[party][query] for party in first[:until]])
                if value in np.sort(before)[:5]:
                    suspects = [name for name in suspects if name in _honest_run(first, owner)]
                    again += 1
                expected += 1 / len(suspects)
        found = report.coalition
        assert isinstance(found, RingFindings)
        assert found.named.with_retries == pytest.approx(expected)
        assert found.named.with_retries > found.named.named
        assert found.named.recurred >= again > 0


def _own_of_batches(report: Report) -> list[dict[str, Floats]]:
    """Return the distances that each party contributes, batch by batch."""
    prepared = prepare(report.scenario, Streams(SEED))
    return [
        {
            party: own_smallest(pairwise_distances(queries, rows.features), 5)
            for party, rows in prepared.setup.parts.items()
        }
        for queries in prepared.setup.batches(prepared.held_out.X)
    ]


def _nearest(own: dict[str, Floats], ring: tuple[str, ...]) -> tuple[Floats, list[list[str]]]:
    """Return the nearest distances of all parties in a ring, and their owners."""
    pooled = np.concatenate([own[party] for party in ring], axis=1)
    order = np.argsort(pooled, axis=1)[:, :5]
    return np.take_along_axis(pooled, order, axis=1), [
        [ring[place // 5] for place in row] for row in order.tolist()
    ]


def _honest_run(ring: tuple[str, ...], party: str) -> list[str]:
    """Return the run of honest parties around a party, from the starter to the last."""
    runs = [list(run) for _, run in groupby(ring, key=lambda name: name in MEMBERS)]
    return next(run for run in runs if party in run)


@SLOW
def test_findings_contain_no_rows() -> None:
    """Apart from names there are only counts and fractions, and no party's distance."""
    report = _run()[0]
    prepared = prepare(report.scenario, Streams(SEED))
    secrets = {
        value
        for rows in prepared.setup.parts.values()
        for value in pairwise_distances(prepared.held_out.X, rows.features).flat
    }
    text = json.dumps(report.as_json()["coalition"])
    numbers: list[float] = []
    json.loads(text, parse_float=lambda word: numbers.append(float(word)))
    assert numbers
    assert not secrets & {number for number in numbers if number}


def _read(*members: str, adding: str) -> TotalsFindings:
    """Return a coalition's findings in rank search among five parties, in two batches."""
    settings = ("parties.count=5", *SETTINGS[1:3], "protocol.name=rank-search")
    found = _run(*settings, f"protocol.sum={adding}", members=members)[0].coalition
    assert isinstance(found, TotalsFindings)
    return found


class TestTotals:
    """The totals of rank search."""

    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    @pytest.mark.parametrize("members", [EVERYBODY[:1], EVERYBODY[2:3], EVERYBODY[1:4]])
    def test_every_total_of_the_others_is_read_but_no_single_count(
        self, members: tuple[str, ...], adding: str
    ) -> None:
        """Up to n - 2 members, with or without the adder, read exact totals of the others only."""
        found = _read(*members, adding=adding)
        assert found.totals == found.right > 12 * 16
        assert found.alone == 0
        assert found.outside == 5 - len(members)
        assert found.guessed == pytest.approx(found.nearest / found.outside)

    @pytest.mark.parametrize("adding", ["all-to-all", "star"])
    @pytest.mark.parametrize("last", [0, 3])
    def test_all_others_read_the_counts_of_the_last_party(self, last: int, adding: str) -> None:
        """Every opened total reveals one of its counts."""
        found = _read(*(party for n, party in enumerate(EVERYBODY[:5]) if n != last), adding=adding)
        assert found.alone == found.right == found.totals > 0
        assert found.guessed == found.nearest

    def test_a_coalition_is_refused_if_counts_stay_shared(self) -> None:
        """No attack is known if only votes are revealed."""
        settings = ("parties.count=5", "protocol.name=rank-search", "protocol.reveal=votes")
        with pytest.raises(ScenarioError, match="no attack on the views"):
            _run(*settings, members=("party-0",))
