"""What all surveys share: public steps come first, and each value is checked before it is told."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.errors import InputError
from veilring.privacy.checks import floats
from veilring.protocols.ldp.algorithm.steps import Step
from veilring.protocols.ldp.algorithm.survey import Survey


class PreparedSurvey(Survey):
    """A survey of rows that go through public steps first.

    Attributes:
        name: What tasks call it.
        steps: What becomes of a row first; nothing, unless a subclass has them as a field.
    """

    name: ClassVar[str]
    steps: tuple[Step, ...] = ()

    @property
    @override
    def public(self) -> Mapping[str, Any]:
        return {
            "survey": self.name,
            "steps": [dict(step.public) for step in self.steps],
            "questions": [dict(question.public) for question in self.questions],
        }


def require_columns(rows: NDArray[Any], columns: int) -> None:
    """Refuse rows of another shape than (rows, columns).

    Raises:
        InputError: If they are.
    """
    if rows.ndim != 2 or rows.shape[1] != columns:  # noqa: PLR2004  (rows by features)
        raise InputError("rows", f"of shape {rows.shape}", f"of shape (rows, {columns})")


def whole(values: NDArray[Any], count: int, column: int | str) -> NDArray[np.int64]:
    """Return values as integers from 0 to `count - 1`.

    Raises:
        InputError: If one is none of these; it names the column, and shows no value.
    """
    field, allowed = f"column {column}", f"integers from 0 to {count - 1}"
    given = floats(field, values, allowed)
    with np.errstate(invalid="ignore"):  # what is not finite is refused
        numbers = given.astype(np.int64)
    is_wrong = (numbers != given) | (numbers < 0) | (numbers >= count)
    if is_wrong.any():
        raise InputError(field, "out of range", allowed)
    return numbers
