"""Guarantees of persons and of a δ among many rows, and forecasts of many batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilring as vr
from veilring.nodes.journal import Traffic
from veilring.privacy.accounting import GaussianDP
from veilring.protocols.promise import batch_sizes, in_batches


@pytest.mark.parametrize("rows", [1, 2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_person_with_several_rows_has_the_bound_of_groups(rows: int, epsilon: float) -> None:
    """ε is multiplied; δ covers Gaussian noise whose sensitivity is multiplied, and is 0 for 0."""
    each = vr.Release(epsilon=epsilon).promise(parties=8)
    person = each.of_person(rows)
    assert person.epsilon == rows * epsilon
    noise = GaussianDP.calibrate(epsilon, each.delta)
    assert GaussianDP(rows * noise.mu).delta(rows * epsilon) <= person.delta * (1 + 1e-9)
    assert person.adjacency == f"a person with up to {rows} rows added or removed"
    assert vr.NoisyVotes(epsilon=epsilon).promise(parties=8).of_person(rows).delta == 0.0


def test_a_bound_of_groups_is_refused_where_it_does_not_apply() -> None:
    """No ε, an adjacency of clients, and no rows at all are refused; δ never exceeds 1."""
    for promise in (vr.RankSearch().promise(), vr.LDPBayes().promise()):
        with pytest.raises(vr.InputError, match="do not apply"):
            promise.of_person(2)
    release = vr.Release(epsilon=200.0).promise()
    with pytest.raises(vr.InputError, match="rows is 0"):
        release.of_person(0)
    assert release.of_person(10**6).delta == 1.0


def test_a_delta_that_is_too_large_for_the_rows_is_named() -> None:
    """A number of rows, and the rows of a run, are compared with δ once."""
    promise = vr.Release().promise()
    assert "δ is too large for 50,000,000 rows" in promise.among(50_000_000).note
    assert "too large" not in promise.among(9_999).note
    assert "too large" not in vr.Release(delta=0.0).promise().among(50_000_000).note
    train, test = vr.load("iris").split(seed=1)
    run = vr.run(vr.Release(delta=0.01), train.partition(3, seed=1), test)
    assert run.promise.note.count("δ is too large for 112 rows") == 1


@given(st.integers(0, 1000), st.integers(1, 100))
def test_batches_are_full_except_the_last(queries: int, size: int) -> None:
    """Together they have all queries, none is empty, and all but the last have the full size."""
    sizes = batch_sizes(queries, size)
    assert sum(sizes) == queries
    assert all(count == size for count in sizes[:-1])
    assert all(1 <= count <= size for count in sizes[-1:])


def test_each_size_is_forecast_once_and_counted_for_each_batch() -> None:
    """Of 25 queries in batches of 10, the full size counts twice; no queries cost nothing."""
    asked = list[int]()

    def cost(count: int) -> vr.Forecast:
        asked.append(count)
        return vr.Forecast(1, Traffic(2, count))

    assert in_batches(cost, 25, 10) == vr.Forecast(3, Traffic(6, 25))
    assert sorted(asked) == [5, 10]
    assert in_batches(cost, 0, 10) == vr.Forecast(0, Traffic())
    assert sorted(asked) == [5, 10]


def test_forecasts_add_up() -> None:
    """A sum adds rounds, traffic and set-up; the most of one adds to the cost of the other."""
    one = vr.Forecast(1, Traffic(2, 3), setup=Traffic(4, 5))
    two = vr.Forecast(1, Traffic(1, 1), most=vr.Forecast(2, Traffic(9, 9)))
    most = vr.Forecast(3, Traffic(11, 12), Traffic(4, 5))
    assert one + two == vr.Forecast(2, Traffic(3, 4), Traffic(4, 5), most)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (vr.Spent(1.0, 0.0, 1, "release").what, "for one release"),
        (vr.Spent(1.0, 0.0, 2, "release").what, "for 2 releases"),
        (vr.Spent(1.0, 0.0, 2, "batch").what, "for 2 batches"),
        (vr.Spent(1.0, 0.0, 3, "query").what, "for 3 queries"),
        (vr.Forecast(1, Traffic(1, 1)), "1 round, 1 message, 1 byte"),
        (vr.Forecast(2, Traffic(2, 20)), "2 rounds, 2 messages, 20 bytes"),
    ],
)
def test_one_unit_is_singular_and_several_are_plural(shown: object, said: str) -> None:
    """This holds for what is spent, and for the rounds, messages and bytes of a forecast."""
    assert str(shown) == said
