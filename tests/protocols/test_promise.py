"""Guarantees: of a person with several rows, and of a δ among many rows."""

import pytest

import veilring as vr
from veilring.errors import InputError
from veilring.privacy.accounting import GaussianDP


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
        with pytest.raises(InputError, match="do not apply"):
            promise.of_person(2)
    release = vr.Release(epsilon=200.0).promise()
    with pytest.raises(InputError, match="rows is 0"):
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
