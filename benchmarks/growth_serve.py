"""Queries a second of each deployment, as more of them are asked at once."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.growth_records import Table, new_server
from benchmarks.measurement import least_seconds
from benchmarks.samples import clustered_balls, wine_parties
from benchmarks.studies import LINE, PAIRS, Basis, Curve, Panel, Study, Term, require_sizes
from veilring.nodes.cluster import Cluster, RuntimeName
from veilring.nodes.ring import deal_ring
from veilring.nodes.service import Threads
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.prediction.messages import PredictionRequest
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.radius.messages import OwnerRules
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.requests import REQUEST_KEY_BYTES
from veilring.protocols.ring.roles import private_knn
from veilring.randomness import Streams
from veilring.scenarios.batches import Progress
from veilring.transport.messages import SESSION_BYTES, encode

QUICK: Final = (1, 8, 64, 512)
FULL: Final = (1, 4, 16, 64, 256, 1_024)

_SECONDS: Final = Panel("queries at once", "seconds")
_RUNTIMES: Final[Mapping[str, RuntimeName]] = {
    "in memory": "memory",
    "over TLS": "tls",
    "as processes": "processes",
}
_TIMES: Final = 15  # of which the quickest counts
_OWNER: Final = "owner"  # it looks at pairs of balls
_OWNER_ROWS: Final = 1_372  # as many as the banknote table
_OWNER_FEATURES: Final = 4
_PER_BALL: Final = 15
_EPSILON: Final = 1.0
_RECORDS: Final = Table(features=64)
_RECORDS_COUNT: Final = 4_096
_SERVER: Final = "prediction server"


def _payers(queries: float) -> float:
    """Return the number of records that a request meets, if its queries are of random classes."""
    others = (1 - 1 / _RECORDS.classes) ** queries
    return float(_RECORDS_COUNT * (1 - others))


_MODELS: Final[Mapping[str, Basis]] = {_OWNER: PAIRS, _SERVER: (*LINE, Term("payers", _payers))}

_Ask = Callable[[int], object]
"""Has a number of queries answered at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The queries and the clock.

    Attributes:
        parties: The number of parties of the ring.
        seed: The seed of rows, queries and noise.
        clock: Returns the time in seconds.
    """

    parties: int = 5
    seed: int = 0
    clock: Callable[[], float] = time.perf_counter


def study_serve(
    asked: Asked, sizes: Sequence[int] = QUICK, *, tell: Progress | None = None
) -> Study:
    """Measure each deployment for each number of queries that are asked at once.

    Args:
        asked: What is asked.
        sizes: Numbers of queries, ascending; at least three.
        tell: Told how far it is.

    Raises:
        InputError: If there are too few sizes, or one is too large for a request.
    """
    most = _RECORDS_COUNT
    allowed = f"three or more numbers from 1 to {most:,}, ascending"
    require_sizes(sizes, len(PAIRS), 1, allowed, most=most)
    curves = []
    for done, (name, served) in enumerate(_deployments(asked, sizes[-1]).items()):
        if tell is not None:
            tell(name, done, len(_RUNTIMES) + 2)
        with served() as ask:
            points: dict[float, float] = {
                size: least_seconds(partial(ask, size), _TIMES, asked.clock) for size in sizes
            }
        rates = tuple(size / seconds for size, seconds in points.items())
        curves.append(
            Curve.fitted(name, _SECONDS, points, _MODELS.get(name, LINE), {"queries/s": rates})
        )
    return Study(
        "serve",
        "Seconds per batch, by number of queries asked at once",
        (
            f"ring: {asked.parties} parties with the wine table; PP-TopK circles the ring 6 times",
            f"owner: {_OWNER_ROWS:,} rows, {_PER_BALL} per ball; the balls overlap",
            f"prediction server: {_RECORDS_COUNT:,} records of {_RECORDS.features} features",
            (
                "payers: expected number of records that pay, if each query has one of "
                f"{_RECORDS.classes} classes at random"
            ),
            "owner and server: charges on disk, no network; fastest of several runs",
        ),
        simulated=False,
        curves=tuple(curves),
        findings=tuple(map(_finding, curves)),
    )


def _finding(curve: Curve) -> str:
    best = max(curve.beside["queries/s"])
    lone = f"{curve.fit(1) * 1000:.3g} ms for a single query (model)"
    return f"{curve.name}: {lone}; {best:,.0f} queries/s at best, measured"


def _deployments(
    asked: Asked, most: int
) -> Mapping[str, Callable[[], AbstractContextManager[_Ask]]]:
    rings = {
        f"ring, {where}": partial(_ring, asked, most, runtime)
        for where, runtime in _RUNTIMES.items()
    }
    return {**rings, _OWNER: partial(_owner, asked, most), _SERVER: partial(_server, asked, most)}


@contextmanager
def _ring(asked: Asked, most: int, runtime: RuntimeName) -> Iterator[_Ask]:
    rng = Streams(asked.seed).generator("serve", "ring")
    rows, parameters = wine_parties(asked.parties, rng)
    queries = rng.random((most, parameters.facts.features))
    with asyncio.Runner() as runner:
        cluster = Cluster(asked.parties, runtime=runtime, own=rows, seed=asked.seed)
        runner.run(_enter(cluster))
        ring = deal_ring(cluster.parties, rng)

        async def ask(count: int) -> None:
            await cluster.run(
                private_knn,
                only={ring.starter: {"queries": queries[:count]}},
                client=ring.starter,
                parameters=parameters,
                ring=ring,
            )

        try:
            yield lambda count: runner.run(ask(count))
        finally:
            runner.run(cluster.__aexit__(None, None, None))


async def _enter(cluster: Cluster) -> None:
    await cluster.__aenter__()


@contextmanager
def _owner(asked: Asked, most: int) -> Iterator[_Ask]:
    rng = Streams(asked.seed).generator("serve", "owner")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        budgets = Budgets(total=1e6)
        ledger = stack.enter_context(open_ledger(Path(folder, "ledger"), budgets, new=True))
        balls = clustered_balls(most, _OWNER_ROWS, _OWNER_FEATURES, per_ball=_PER_BALL, rng=rng)
        offload = Threads(1, "labels")  # starts no thread: `settle` is called at once
        rules = OwnerRules(_OWNER_FEATURES, 2)
        owner, numbers = Owner(balls.rows, rules, ledger, offload), itertools.count()

        def ask(count: int) -> None:
            name = str(next(numbers))
            centres, radii = balls.centres[:count], balls.radii[:count]
            answer = owner.answer_once(
                "analyst", ask_within(centres, radii, _EPSILON, name=name), rng
            )
            encode(bytes(SESSION_BYTES), answer)

        yield ask


@contextmanager
def _server(asked: Asked, most: int) -> Iterator[_Ask]:
    rng = Streams(asked.seed).generator("serve", "server")
    table = replace(_RECORDS, seed=asked.seed)
    rules = replace(table.rules, block_max=most)
    rows, labels = zip(*table.chunks(_RECORDS_COUNT), strict=True)
    records = np.concatenate(rows[1:]), np.concatenate(labels[1:])
    queries = records[0][:most].astype(np.int16)
    with new_server(rules) as state:
        names = [f"record-{number}" for number in range(_RECORDS_COUNT)]
        state.add(LabelledRecords.of(names, *records))

        def ask(count: int) -> None:
            request = PredictionRequest(
                key=rng.bytes(REQUEST_KEY_BYTES), more=False, queries=queries[:count]
            )
            encode(bytes(SESSION_BYTES), state.answer("client", request, rng))

        yield ask
