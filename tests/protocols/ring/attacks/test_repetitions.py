"""The success of the attack over repetitions, by sessions and colluders."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from tests.protocols.ring.attacks.asking import EXACT, FALSE_ALARM, NOISY
from tests.protocols.ring.worlds import hoeffding

from veilring.errors import InputError
from veilring.protocols.ring.attacks.views import UniformPrior, tracing_success


def found_without_noise(sessions: int) -> float:
    """Return the rate at which one of six parties finds an owner, from the suspects' odds."""
    least = [comb(4, size) * (2 / (size + 2)) ** sessions for size in range(5)]
    exactly = [
        sum((-1) ** (size - a) * comb(size, a) * least[size] for size in range(a, 5))
        for a in range(5)
    ]
    return float(sum(p / (1 + a) for a, p in enumerate(exactly)))


@pytest.mark.slow
def test_success_grows_with_repetitions_and_colluders() -> None:
    """Noiseless success equals its closed form; noise never raises it, colluders never lower it.

    One colluder succeeds at least as often as a guess among five parties, and four sessions at
    least as often as one, within Hoeffding's bound for batches of queries (false alarm 1e-6).
    """
    prior, batches, shares = UniformPrior(20), 300, {}
    for name, parameters, coalition in (
        ("exact", EXACT, 1),
        ("noisy", replace(NOISY, k=1), 1),
        ("pair", replace(NOISY, k=1), 2),
    ):
        shares[name] = np.array(
            [
                tracing_success(
                    6, parameters, prior, coalition=coalition, sessions=4, batches=1, rng=rng
                )
                for rng in np.random.default_rng(1).spawn(batches)
            ]
        )
    stray = hoeffding(1, batches, FALSE_ALARM / 20)
    known = [found_without_noise(sessions) for sessions in range(1, 5)]
    # A batch in which no honest party owns a result has no share, and is left out.
    assert (abs(np.nansum(shares["exact"] - known, axis=0)) <= stray).all()
    assert (np.nansum(shares["noisy"] - known, axis=0) <= stray).all()
    assert (np.nansum(shares["noisy"] - 1 / 5, axis=0) >= -stray).all()
    assert (np.nansum(shares["pair"] - shares["noisy"], axis=0) >= -2 * stray).all()
    for each in shares.values():
        assert np.nansum(each[:, 3] - each[:, 0]) >= -2 * stray


@pytest.mark.parametrize("coalition", [0, 6])
def test_an_empty_or_complete_coalition_is_refused(coalition: int) -> None:
    """A coalition of no parties, or of all parties, is refused."""
    with pytest.raises(InputError, match=f"coalition is {coalition}"):
        tracing_success(
            6,
            EXACT,
            UniformPrior(20),
            coalition=coalition,
            sessions=1,
            batches=1,
            rng=np.random.default_rng(1),
        )
