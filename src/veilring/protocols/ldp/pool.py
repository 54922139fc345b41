"""`ClientPool`: any number of clients in one place, each of which answers for itself.

A single client is a pool of one. There is no other way to make a report, so that a hundred thousand
clients of an experiment do what the one on a telephone does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.protocols.ldp.algorithm.chunks import how_many
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.algorithm.survey import answer
from veilring.protocols.ldp.messages import ID_BYTES, ReportBatch
from veilring.protocols.ldp.task import Task

# A quarter of a frame: large enough that a message's own cost vanishes, small enough that several
# are under way while one is stored.
BATCH_BYTES_MAX: Final = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Reports to one question, each with its id.

    Attributes:
        question: Which.
        ids: Shape (reports, `ID_BYTES`).
        reports: Shape (reports, bytes).
        clients: Who made them: their places in the pool, or numbers in an outbox; never sent.
    """

    question: int
    ids: NDArray[np.uint8]
    reports: Reports
    clients: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def payload_bytes(self) -> int:
        """How many bytes the reports and their ids have."""
        return self.ids.nbytes + self.reports.nbytes

    def message(self, task: Task, *, more: bool) -> ReportBatch:
        """Return what is sent."""
        return ReportBatch(
            task=task.digest,
            question=self.question,
            ids=self.ids.tobytes(),
            reports=self.reports.tobytes(),
            more=more,
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClientPool:
    """Clients with a row each. Their values are never shown.

    Attributes:
        rows: One row a client, as the survey takes them.
        labels: The class of each.
    """

    rows: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"ClientPool({len(self)} clients)"

    def answer(self, task: Task, rng: Generator, *, at_once: int | None = None) -> Iterator[Batch]:
        """Yield each client's one report, in batches by question, in a random order.

        Every call makes new reports and spends the task's epsilon again.

        Args:
            task: What is asked.
            rng: The clients' secret randomness; the ids are drawn from it, too.
            at_once: How many reports a batch may have; as many as `BATCH_BYTES_MAX` unless given.

        Raises:
            InputError: If a row does not fit, or no report may be in a batch.
        """
        answers = answer(task.survey, self.rows, self.labels, rng)
        ids = np.frombuffer(rng.bytes(ID_BYTES * len(self)), np.uint8).reshape(-1, ID_BYTES)
        for question, reports in answers:
            # The order of the rows would show ranks, where a file is sorted, and who is who in
            # another task.
            order = rng.permutation(len(reports))
            clients, reports = answers.clients[question][order], reports[order]  # noqa: PLW2901  (as they leave)
            size = how_many(at_once, batch_reports(reports.shape[1]))
            for first in range(0, len(reports), size):
                part = slice(first, first + size)
                yield Batch(question, ids[clients[part]], reports[part], clients[part])


def batch_reports(report_bytes: int) -> int:
    """Return how many reports of so many bytes a batch may have."""
    return max(1, BATCH_BYTES_MAX // (ID_BYTES + report_bytes))
