"""What crosses the wire in the LDP family."""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.transport.messages import Array, Message

ID_BYTES: Final = 16  # as many as a UUID has: never drawn twice by chance

_Number = Annotated[int, Field(ge=0)]


class Published(Message, kind="ldp.task"):
    """A task as its aggregator publishes it: `Task.encoded`."""

    task: bytes


class ReportBatch(Message, kind="ldp.reports"):
    """One report or many, all to one question of one task.

    Attributes:
        task: The hash of the task that they were made for.
        question: Which.
        ids: `ID_BYTES` for each report, one after the other.
        reports: The reports, in the same order.
        more: Whether another batch follows in this session.
    """

    task: bytes
    question: _Number
    ids: bytes
    reports: bytes
    more: bool


class Receipt(Message, kind="ldp.receipt"):
    """Says that the next so many reports, in the order in which they were sent, are settled.

    Those that are not listed are durable and count; the others' verdicts stand beside their
    places.

    Attributes:
        reports: How many.
        places: Of those that were not simply counted, from 0.
        verdicts: What became of each of these: a `Verdict`.
    """

    reports: _Number
    places: Annotated[NDArray[np.uint32], Array("<u4", 1)]
    verdicts: Annotated[NDArray[np.uint8], Array("|u1", 1)]
