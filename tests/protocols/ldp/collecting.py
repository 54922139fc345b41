"""A small task and reports for it, for tests of the collector."""

from collections.abc import Sequence

import numpy as np

from veilring.arrays import Ints
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.survey import DiscreteBayesSurvey
from veilring.protocols.ldp.messages import (
    Accepted,
    ClientBatch,
    ReportBatch,
    Task,
    Verdicts,
    judge_batches,
)
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Quotas, Senders, Store

CLASSES, VALUES = 3, 5


def make_task(*, epsilon: float = 1.0, closes: float | None = None) -> Task:
    """Return a task with three questions: of one byte, two bytes and two bytes."""
    oracles = (
        DirectEncoding(CLASSES, epsilon),
        OptimisedUnary(CLASSES * VALUES, epsilon),
        OptimisedUnary(CLASSES * VALUES, epsilon),
    )
    survey = DiscreteBayesSurvey((VALUES, VALUES), CLASSES, oracles)
    return Task({"columns": ["a", "b"]}, survey, closes)


def new_store(where: str) -> Store:
    """Create a store of reports to `make_task()`, and open it."""
    begin_report_store(where)
    return open_report_store(where, make_task())


def people(count: int, rng: np.random.Generator) -> ClientPool:
    """Return clients with random rows."""
    rows: Ints = rng.integers(VALUES, size=(count, 2))
    return ClientPool(rows, rng.integers(CLASSES, size=count))


def batches(
    task: Task, count: int, seed: int = 0, *, at_once: int | None = None
) -> list[ClientBatch]:
    """Return the reports of the given number of clients."""
    rng = np.random.default_rng(seed)
    return list(people(count, rng).answer(task, rng, at_once=at_once))


def messages(task: Task, made: list[ClientBatch]) -> list[ReportBatch]:
    """Return the messages of batches."""
    last = len(made) - 1
    return [batch.message(task, more=place < last) for place, batch in enumerate(made)]


def accepted(task: Task, made: list[ClientBatch]) -> tuple[Accepted, ...]:
    """Return batches in the form that a store accepts."""
    verdicts, found = judge_batches(task, messages(task, made))
    assert not verdicts.any()
    return found


def keep(
    store: Store,
    arrived: Sequence[Accepted],
    *,
    member: str = "ada",
    quotas: Quotas | None = None,
    closed: bool = False,
) -> list[Verdicts]:
    """Store the reports of one member."""
    count = max((int(each.places.max()) + 1 for each in arrived if len(each.places)), default=0)
    senders = Senders((member,), np.zeros(count, dtype=np.int64))
    return store.keep(arrived, senders, quotas=quotas or Quotas(), closed=closed)
