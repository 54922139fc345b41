"""A small task and reports for it, for tests of the collector."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from veilring.arrays import Ints
from veilring.protocols.ldp.algorithm.oracles import DirectEncoding, OptimisedUnary
from veilring.protocols.ldp.algorithm.survey import DiscreteBayesSurvey, Tally
from veilring.protocols.ldp.messages import (
    BATCH_REPORTS_MAX,
    ID_BYTES,
    Accepted,
    ClientBatch,
    ReportBatch,
    ReportVerdict,
    Task,
    Verdicts,
    judge_batches,
)
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.store import begin_report_store, open_report_store
from veilring.protocols.ldp.store.base import Quotas, Senders, Store
from veilring.transport.messages import Message

CLASSES, VALUES = 3, 5


def make_task(*, epsilon: float = 1.0, closes: float | None = None) -> Task:
    """Return a task with three questions: of one byte, two bytes and two bytes."""
    classes, values = DirectEncoding(CLASSES, epsilon), OptimisedUnary(CLASSES * VALUES, epsilon)
    survey = DiscreteBayesSurvey((VALUES, VALUES), CLASSES, (classes, values, values))
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


def require_equal(found: Tally | None, other: Tally) -> None:
    """Require that a tally was found and equals another one."""
    assert found is not None
    assert found.counts == other.counts
    assert all(map(np.array_equal, found.sums, other.sums))


Lie = Callable[[Message], Message]


def with_fields(message: Message, **changed: object) -> ReportBatch:
    """Change some fields of a message with reports."""
    assert isinstance(message, ReportBatch)
    return message.model_copy(update=changed)


def lie(**changed: Callable[[bytes], object]) -> Lie:
    """Return a change of some fields, each made from the bytes of all reports of a message."""
    return lambda message: with_fields(
        message, **{name: of(with_fields(message).reports) for name, of in changed.items()}
    )


MANY = bytes(ID_BYTES * (BATCH_REPORTS_MAX + 1))
REFUSALS: Final[dict[str, tuple[Lie, ReportVerdict]]] = {
    "another task": (lie(task=lambda _: bytes(32)), ReportVerdict.OTHER_TASK),
    "no hash": (lie(task=lambda _: b""), ReportVerdict.OTHER_TASK),
    "unknown question": (lie(question=lambda _: 99), ReportVerdict.MALFORMED),
    "too few bytes": (lie(reports=lambda own: own[:-1]), ReportVerdict.MALFORMED),
    "too many bytes": (lie(reports=lambda own: own * 2), ReportVerdict.OVERSIZED),
    "too many reports": (lie(ids=lambda _: MANY, reports=lambda _: b""), ReportVerdict.OVERSIZED),
    # padding bits, or a value beyond the domain
    "impossible": (lie(reports=lambda own: b"\xff" * len(own)), ReportVerdict.OUT_OF_DOMAIN),
}
"""Malformed reports that no client sends, and the reason for which each is refused."""


def ragged_ids(message: Message) -> Message:
    """Keep only a part of an id."""
    return with_fields(message, ids=with_fields(message).ids[:-1])
