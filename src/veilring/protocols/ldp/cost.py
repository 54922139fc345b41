"""The closed form: what a collection in one session will cost, before it is run."""

from collections.abc import Sequence

from veilring.measure.cost import Traffic
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.ldp.messages import ID_BYTES, ReportBatch
from veilring.protocols.ldp.pool import batch_reports
from veilring.protocols.ldp.task import Task


def gather_cost(task: Task, asked: Sequence[Sequence[int]]) -> Forecast:
    """Forecast `gather`: one message a client, one round.

    A pool sends `ceil(c / s)` messages to a question that c of its clients drew, where
    `s = batch_reports(report_bytes)`, and one empty message if it has no clients.

    Args:
        task: What is asked.
        asked: For each party but the aggregator, how many of its clients drew each question.
    """
    total = Traffic()
    for counts in asked:
        for question, clients in enumerate(counts):
            size = batch_reports(_width(task, question))
            full, rest = divmod(clients, size)
            total = total.plus(batch_traffic(task, question, size, times=full))
            total = total.plus(batch_traffic(task, question, rest, times=int(rest > 0)))
        if not sum(counts):
            total = total.plus(batch_traffic(task, 0, 0))
    return Forecast(1, total)


def batch_traffic(task: Task, question: int, reports: int, *, times: int = 1) -> Traffic:
    """Return what so many batches of so many reports each are on the wire.

    One report is `report_bytes + ID_BYTES`, and a batch some 70 bytes more, of which the task's
    hash is 32 and the session's name 16.
    """
    batch = ReportBatch(
        task=task.digest,
        question=question,
        ids=bytes(ID_BYTES * reports),
        reports=bytes(_width(task, question) * reports),
        more=False,
    )
    return repeated(times, batch)


def _width(task: Task, question: int) -> int:
    return task.survey.questions[question].report_bytes
