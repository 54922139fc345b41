"""Rings of five parties: their runs, the findings of honest ones, and bounds on random sums."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import ProtocolViolation, RunFailed, Tampered, VeilringError
from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.nodes.ring import Ring
from veilring.nodes.run import Run
from veilring.nodes.runtimes import Runtime
from veilring.protocols.promise import Facts
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.roles import KNNAnswer, KNNParameters, private_knn, secure_sum
from veilring.protocols.ring.system import PrivateKNN

FALSE_ALARM = 1e-6
NAMES = [f"party-{n}" for n in range(5)]
RING = Ring([NAMES[n] for n in (3, 0, 4, 1, 2)])
STARTER, LAST = RING.order[0], RING.order[-1]
METHODS = [SumMethod(), SumMethod("cycles", 2), SumMethod("shares"), SumMethod("masks")]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)

_R = TypeVar("_R")


class Labelled(NamedTuple):
    """A party's rows, and the client's batch."""

    rows: Rows
    queries: Floats | None = None


def rng(*seed: int) -> np.random.Generator:
    """Return a seeded generator."""
    return np.random.default_rng(seed or 0)


def bound(
    features: int, classes: int, method: SumMethod | None = None, **options: Any
) -> KNNParameters:
    """Return PP-kNN with the given options for rows of this shape."""
    chosen = method or SumMethod()
    system = PrivateKNN(sum=chosen.name, cycles=chosen.cycles, **options)
    return system.bind(Facts(5, features, classes))


async def play(
    role: Callable[..., Awaitable[_R]],
    own: Sequence[object] | None = None,
    *,
    names: Sequence[str] = NAMES,
    seed: int = 5,
    runtime: RuntimeName | Runtime = "memory",
    **options: Any,
) -> Run[_R]:
    """Run a role once, by default in memory."""
    async with Cluster(names, runtime=runtime, own=own, seed=seed) as cluster:
        return await cluster.run(role, **options)


async def ask(
    rows: Sequence[Rows],
    queries: Floats,
    parameters: KNNParameters,
    *,
    client: str = NAMES[0],
    **options: Any,
) -> Run[KNNAnswer]:
    """Have a client ask for the labels of its queries, by default in memory."""
    only = {client: {"queries": queries}}
    return await play(private_knn, rows, only=only, client=client, parameters=parameters, **options)


sum_up = partial(play, secure_sum, fixed=FixedPoint(24, len(NAMES)), ring=RING)


def accusations(failed: RunFailed, liar: str) -> list[VeilringError]:
    """Return the accusations made by honest parties."""
    honest = (error for name, error in failed.errors.items() if name != liar)
    return [error for error in honest if isinstance(error, ProtocolViolation | Tampered)]


def is_among(liar: str, error: VeilringError) -> bool:
    """Return whether an accusation includes the liar."""
    if isinstance(error, Tampered):
        return liar in error.suspects
    return isinstance(error, ProtocolViolation) and error.culprit == liar


def culprits(failed: RunFailed) -> set[str]:
    """Return the parties that others name as having broken the protocol."""
    named = (error for error in failed.errors.values() if isinstance(error, ProtocolViolation))
    return {error.culprit for error in named}


def check_accused(failed: RunFailed, liar: str) -> RunFailed:
    """Require an accusation by an honest party, and the liar in each of them."""
    found = accusations(failed, liar)
    assert found, failed.errors
    assert all(is_among(liar, error) for error in found)
    return failed


async def accused(liar: str, run: Awaitable[object], match: str | None = None) -> RunFailed:
    """Require that a run fails, and that honest parties accuse the liar; return the failure."""
    with pytest.raises(RunFailed, match=match) as caught:
        await run
    return check_accused(caught.value, liar)


def hoeffding(width: float, count: int, false_alarm: float) -> float:
    """Return a bound on a sum of `count` centred terms, each in an interval of some width.

    It is exceeded with probability `false_alarm`.
    """
    return float(width * np.sqrt(count * np.log(1 / false_alarm) / 2))


def bernstein(variance: float, largest: float, false_alarm: float) -> float:
    """Return a bound on a sum of centred terms, given its variance and the largest term.

    It is exceeded with probability `false_alarm`.
    """
    log = np.log(1 / false_alarm)
    return float(largest * log / 3 + np.sqrt((largest * log / 3) ** 2 + 2 * variance * log))


def empirical_bernstein(terms: Floats, width: float, false_alarm: float) -> float:
    """Return a bound on the deviation of a sum of independent terms, with an estimated variance.

    Each term is in an interval of some width, and the false-alarm rate is that of one side. Source:
    Maurer and Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT 2009,
    Theorem 4.
    """
    count, log = len(terms), np.log(2 / false_alarm)
    mean = np.sqrt(2 * terms.var(ddof=1) * log / count) + 7 * width * log / (3 * (count - 1))
    return float(count * mean)
