"""Values that a coalition sees again are real: after a retry, and among similar queries."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.protocols.ring.attacks.asking import FALSE_ALARM, NOISY, ORDER, ask, success
from tests.protocols.ring.worlds import hoeffding

from veilring.protocols.ring.attacks.views import find_owners, recurring, simulated_view
from veilring.protocols.ring.leakage import transcript


@pytest.mark.slow
def test_a_session_that_fails_later_leaks_more() -> None:
    """A session that fails while all entries are noise adds nothing; later failures add more.

    This holds in expectation, and in the sample within Hoeffding's bound (false alarm 1e-6).
    """
    promised = []
    for failed_after in (None, 6, 12, 30):
        rng = np.random.default_rng(5)
        asked = (ask(NOISY, 10, 2, rng, failed_after=failed_after) for _ in range(150))
        if failed_after is None:  # as if there had been the second session only
            asked = (each._replace(sessions=each.sessions[1:]) for each in asked)
        promised.append(np.array([success(each).promised for each in asked]))
    assert promised[0] == pytest.approx(promised[1], rel=1e-12)  # round 1 is all noise
    for earlier, later in pairwise(promised[1:]):
        assert (later - earlier).sum() >= -hoeffding(2 * 30, 150, FALSE_ALARM / 2)
        assert (later != earlier).any()


def test_only_real_values_recur() -> None:
    """A value that is seen twice is real, and all values of the result are seen twice.

    A party never inserts in six rounds with probability 2^-15, so the probability that one of 600
    values is seen fewer than two times in four sessions is at most 2400 / 2^45 < 1e-6.
    """
    asked = ask(replace(NOISY, rounds=6), 200, 4, np.random.default_rng(6))
    for run, found in enumerate(recurring(asked.sessions)):
        assert np.isin(found, asked.everything[run]).all()
        assert np.isin(asked.top[run], found).all()
    once = recurring(asked.sessions, least=1)
    assert all(
        len(seen) > len(twice) for seen, twice in zip(once, recurring(asked.sessions), strict=True)
    )


def test_values_in_no_result_recur_too() -> None:
    """A displaced value, which is in no result, is found once it was seen in two sessions.

    The adversary follows the owner of the second smallest value, which it sees if the owner inserts
    in round 2: the owner starts, and noise of the smallest value's owner is below its value with
    probability at most 1e-8. This happens in fewer than two of four sessions with probability 5/16,
    so the value is never found in 20 runs with probability 1e-10.
    """
    rng, runs = np.random.default_rng(10), 20
    values = np.tile(np.array([0.9, 0.1, 0.1 + 1e-9, 0.5, 0.6, 0.7])[:, None], (runs, 1, 1))
    parameters, places = replace(NOISY, k=1), [2, 0, 1, 3, 4, 5]
    order = [ORDER[place] for place in places]
    sessions = [
        simulated_view(
            transcript(values[:, places], parameters, rng), parameters, order, [ORDER[0]]
        )
        for _ in range(4)
    ]
    found = recurring(sessions)
    assert all(np.isin(seen, values).all() for seen in found)
    assert any(0.1 + 1e-9 in seen for seen in found)


def test_similar_queries_are_joined_by_a_tolerance() -> None:
    """Values that moved by less than the tolerance are equal, and are traced to their owner.

    Noise is spread over at least 0.1, so the probability that one of 7,680 entries comes this near
    to one of two values is at most 7680 * 2 * 2e-12 / 0.1 < 1e-6.
    """
    rng = np.random.default_rng(7)
    asked = ask(replace(NOISY, k=2), 40, 8, rng)
    moved = []
    for number, session in enumerate(asked.sessions, start=1):
        shifted = {n: v + number * 1e-13 for n, v in session.vectors.items() if n}
        moved.append(replace(session, vectors=shifted | {0: session.vectors[0]}))
    assert all(len(found) == 0 for found in recurring(moved))
    for run, found in enumerate(recurring(moved, tolerance=1e-12)):
        nearest = np.abs(found[:, None] - asked.top[run]).min(axis=0)
        assert (nearest < 1e-12).all()
    still = find_owners(moved, asked.top, tolerance=1e-12)
    assert still.posterior == pytest.approx(find_owners(asked.sessions, asked.top).posterior)
    blind = find_owners(moved, asked.top)  # no value is ever met again
    assert blind.posterior == pytest.approx(np.full(blind.posterior.shape, 1 / 5))
