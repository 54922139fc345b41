"""What a row of such a file is, and what no client could have made."""

from typing import Final

from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.randomiser import Reports
from veilring.protocols.ldp.task import Task

COLUMNS: Final = ("task", "question", "report")
"""Binary of 32 bytes, unsigned integer, and binary of the question's `report_bytes`."""
# Of reports that are looked at together: what a process holds is a few times this, and what it
# computes takes long beside being told to.
PIECE_BYTES_MAX: Final = 1 << 26
ROW_BYTES: Final = 64
"""What Polars and Python hold of a row beside its report."""


def require_possible(task: Task, question: int, reports: Reports, where: object) -> None:
    """Refuse reports that no client could have made.

    Raises:
        InputError: If there is such a one; it says where.
    """
    questions = task.survey.questions
    if not 0 <= question < len(questions) or not questions[question].accept(reports).all():
        raise impossible(where)


def impossible(where: object) -> InputError:
    """Return the error that says where a report is that no client could have made."""
    return InputError("reports", f"{where}, in which some fit no question", "what clients can make")
