"""From a table to values that are numbered from 0, as discrete naive Bayes takes them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.data import Table
from veilring.protocols.ldp.algorithm.steps import Bins, Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """Rows of numbered values.

    Attributes:
        rows: Shape (rows, columns): a column of the data set each, categories first.
        domains: How many values each column has.
    """

    rows: NDArray[np.int64]
    domains: tuple[int, ...]


def numbered(table: Table, bins: int) -> Numbered:
    """Return each category by its number, and each number by its bin.

    Args:
        table: Scaled into [0, 1].
        bins: Into how many a number goes, of equal widths.
    """
    is_number = np.ones(table.features.shape[1], dtype=np.bool_)
    columns = []
    for each in table.categories:
        is_number[each.features] = False
        columns.append(table.features[:, each.features].argmax(axis=1))
    numbers = int(is_number.sum())
    unit = Ranges((0.0,) * numbers, (1.0,) * numbers)
    binned = Bins(unit, (bins,) * numbers)(table.features[:, is_number])
    domains = (*(len(each.values) for each in table.categories), *((bins,) * numbers))
    return Numbered(np.column_stack((*columns, binned)), domains)
