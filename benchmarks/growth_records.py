"""Time per query and memory of a prediction server, by number of records."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import apart, least_seconds, peak_mib
from benchmarks.samples import Clusters
from benchmarks.studies import LINE, Curve, Panel, Study, require_sizes
from veilring.arrays import Ints
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import BLOCK, Hashing, Kernel
from veilring.protocols.prediction.algorithm.filter import FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.messages import PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.state import ServerState, begin_state, open_state
from veilring.protocols.requests import REQUEST_KEY_BYTES
from veilring.randomness import Streams
from veilring.scenarios.batches import Progress

# Room for rows grows by doubling from 16: at powers of two, all of it is in use.
QUICK: Final = (1 << 12, 1 << 14, 1 << 15, 1 << 16)
FULL: Final = (1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 19)

_SECONDS: Final = Panel("records", "seconds per query")
_MEMORY: Final = Panel("records", "MiB, peak of the process")
_AT_ONCE: Final = 2_048  # records that are drawn and added at a time
_LONE: Final = 9  # lone queries, the quickest of which counts
_BLOCKS: Final = 3
_STREAM: Final = 100_000  # T
# So large that no record spends its budget meanwhile: those that have are left out, which is quick.
_EPSILON: Final = 20.0
_SIGMA2: Final = 0.5  # as in earlier measurements
_LARGE: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """The records and the queries.

    Attributes:
        features: The number of features of a row.
        classes: The number of classes.
        tau: The minimum cosine similarity of a neighbour.
        seed: The seed of rows, queries and noise.
    """

    features: int = 768
    classes: int = 10
    tau: float = 0.3
    seed: int = 0

    @property
    def rules(self) -> ServerRules:
        """A server's, with room for all queries that are measured."""
        kernel = Kernel("cosine", self.tau)
        return ServerRules(
            self.features, self.classes, _STREAM, _EPSILON, kernel=kernel, sigma2=_SIGMA2
        )

    def chunks(self, records: int) -> Iterator[tuple[NDArray[np.float32], Ints]]:
        """Yield records bit by bit, so that no second copy of all is made; queries come first."""
        rng = Streams(self.seed).generator("records")
        clusters = Clusters.draw(self.classes, self.features, rng)
        yield clusters.rows(BLOCK, rng)
        for first in range(0, records, _AT_ONCE):
            yield clusters.rows(min(_AT_ONCE, records - first), rng)


@contextmanager
def new_server(rules: ServerRules) -> Iterator[ServerState]:
    """Yield the state of a server without records, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        begin_state(rules, Path(folder, "state"))
        with open_state(rules, Path(folder, "state")) as state:
            yield state


def seconds_by_server(
    table: Table, records: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Return a query's seconds in a block and alone, at a server with its ledger on the disk.

    Args:
        table: What is there.
        records: How many.
        clock: Gives seconds.
    """
    rng, chunks = Streams(table.seed).generator("server"), table.chunks(records)
    queries = next(chunks)[0].astype(np.int16)
    queries = queries[: table.rules.fitting]
    with new_server(table.rules) as state:
        for number, (rows, labels) in enumerate(chunks):
            ids = [f"record-{number * _AT_ONCE + place}" for place in range(len(rows))]
            state.add(LabelledRecords.of(ids, rows, labels))

        def ask(state: ServerState, count: int) -> None:
            request = PredictionRequest(
                key=rng.bytes(REQUEST_KEY_BYTES), more=False, queries=queries[:count]
            )
            state.answer("client", request, rng)

        block = least_seconds(partial(ask, state, len(queries)), _BLOCKS, clock) / len(queries)
        return block, least_seconds(partial(ask, state, 1), _LONE, clock)


def seconds_by_predictor(
    table: Table, records: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Return a lone query's seconds without and with hashing, in memory and without a ledger."""
    hashing = Hashing.draw(table.features, Streams(table.seed).generator("planes"))
    rules, seconds = table.rules, list[float]()
    for used in (None, hashing):
        parameters = FilterParameters(rules.classes, rules.queries, rules.budget, rules.sigma2)
        predictor = Predictor(parameters, rules.kernel, rules.features, hashing=used)
        rng, chunks = Streams(table.seed).generator("predictor"), table.chunks(records)
        queries, _ = next(chunks)
        for rows, labels in chunks:
            ids = np.arange(len(predictor), len(predictor) + len(rows))
            predictor.add(ids, rows, labels, np.full(len(rows), int(rules.budget * UNITS)))
        ask = partial(predictor.answer_block, queries[:1], rng)
        seconds.append(least_seconds(ask, _LONE, clock))
    plain, hashed = seconds
    return plain, hashed


def _measured(
    table: Table, records: int, clock: Callable[[], float]
) -> tuple[tuple[float, ...], float]:
    """Return all seconds, and the peak of memory before the predictors take theirs."""
    by_server = seconds_by_server(table, records, clock)
    mib = peak_mib()
    return (*by_server, *seconds_by_predictor(table, records, clock)), mib


def study_records(
    table: Table,
    sizes: Sequence[int] = QUICK,
    *,
    gib: float = 16.0,
    clock: Callable[[], float] = time.perf_counter,
    tell: Progress | None = None,
) -> Study:
    """Measure a prediction server for each number of records, each in a process of its own.

    Args:
        table: The records and the queries.
        sizes: Numbers of records, ascending; at least three.
        gib: The memory of the machine whose capacity in records the study states.
        clock: Returns the time in seconds; a function at the top level of a module.
        tell: Receives messages on the progress.

    Raises:
        InputError: If there are too few sizes.
    """
    require_sizes(sizes, 3, 1, "three or more numbers of records, ascending")
    names = ("in blocks", "alone", "alone, rows only", "alone, rows only, hashed")
    seconds: dict[str, dict[float, float]] = {name: {} for name in names}
    memory = dict[float, float]()
    for done, size in enumerate(sizes):
        if tell is not None:
            tell(f"{size:,} records", done, len(sizes))
        values, memory[size] = apart(_measured, table, size, clock)
        for name, value in zip(names, values, strict=True):
            seconds[name][size] = value
    curves = [Curve.fitted(name, _SECONDS, seconds[name], LINE) for name in names]
    curves.append(Curve.fitted("a server", _MEMORY, memory, LINE))
    return Study(
        "records",
        "Time and memory of a prediction server, by number of records",
        (
            f"{table.features} features, {table.classes} classes, tau {table.tau:g}",
            f"blocks of {table.rules.fitting} queries; the server charges a ledger on disk",
            "rows only: a predictor in memory, without a ledger; no record exhausts its budget",
            "on one core; fastest of several runs",
        ),
        simulated=False,
        curves=tuple(curves),
        findings=tuple(_findings(curves, gib)),
    )


def _findings(curves: Sequence[Curve], gib: float) -> Iterator[str]:
    block, lone, _, _, memory = (curve.fit for curve in curves)
    beyond = f"{_LARGE / curves[0].x[-1]:,.0f} times the largest measurement"
    yield (
        f"extrapolated to {_LARGE:,} records, {beyond}: {block(_LARGE):.3g} s per query in blocks, "
        f"{lone(_LARGE):.3g} s alone, {memory(_LARGE) / 1024:.3g} GiB"
    )
    base, each = memory.factors
    if each > 0:
        most = int((gib * 1024 - base) / each)
        yield f"{most:,} records fit in {gib:g} GiB, according to the model"
