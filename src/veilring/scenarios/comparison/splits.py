"""The same splits of the same data, for every system."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilring.data import Table, load, partition, scale_to_unit, split
from veilring.errors import InputError
from veilring.randomness import Streams
from veilring.scenarios.comparison.comparison import Facts
from veilring.scenarios.comparison.question import Question, require_rows
from veilring.scenarios.comparison.rules import TEST_SHARE

_OWN_BOUNDS: Final = (
    "the least and the greatest value of each column of the file, held-out rows included: they"
    " stand in for public ranges. They are none: who scales by the extremes of private rows shows"
    " these. In earnest take ranges that are known without the rows, such as a form's or a sensor's"
)
_BUILTIN_BOUNDS: Final = (
    "the least and the greatest value of each feature of the whole table, held-out rows included;"
    " it is public, and so are they. Private rows need ranges that are known without them"
)
_FILES: Final = {".csv", ".npz"}
# More batches make intervals narrower, which the overlap of the splits soon puts an end to.
BATCHES_MAX: Final = 4


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Split:
    """One split, the features scaled into [0, 1] by public ranges.

    Attributes:
        number: Which, from 0.
        train: What the parties hold together.
        batches: Held-out rows, in batches that are each asked once, of fresh parties.
        parts: The positions of the training rows that each party holds, by its name.
    """

    number: int
    train: Table
    batches: tuple[Table, ...]
    parts: Mapping[str, NDArray[np.int64]]

    @property
    def queries(self) -> int:
        """How many are asked in all batches."""
        return sum(map(len, self.batches))

    @property
    def overlap(self) -> float:
        """The queries over the training rows: what intervals are corrected by."""
        return self.queries / len(self.train)

    def accuracy(self, labels: Iterable[NDArray[np.int64]]) -> float:
        """Return the share of queries whose label, given batch by batch, is their true class."""
        truth = [asked.y for asked in self.batches]
        return float((np.concatenate([*labels]) == np.concatenate(truth)).mean())


def load_facts(question: Question) -> tuple[Table, Facts]:
    """Load a table, scaled into [0, 1], with what is public about it.

    Raises:
        InputError: If there is no such data set, or it has too few rows for the question.
    """
    try:
        loaded = load(question.data, label=question.label or None, separator=question.separator)
    except InputError as error:
        if error.field != "source":
            raise
        raise InputError("data", error.value, error.allowed) from error
    table = scale_to_unit(loaded)
    first = next(draw_splits(table, question))
    held_out = len(table) - len(first.train)
    require_rows(question, len(first.train), held_out)
    from_file = Path(question.data).suffix.lower() in _FILES
    facts = Facts(
        name=Path(question.data).stem if from_file else question.data,
        rows=len(table),
        features=len(table.features),
        classes=len(table.features.classes),
        categorical=table.features.is_categorical,
        train=len(first.train),
        held_out=held_out,
        queries=len(first.batches[0]),
        batches=len(first.batches),
        bounds=_OWN_BOUNDS if from_file else _BUILTIN_BOUNDS,
    )
    return table, facts


def draw_splits(table: Table, question: Question) -> Iterator[Split]:
    """Yield the splits, each from a stream of its own."""
    streams = Streams(question.seed)
    for number in range(question.splits):
        train, held_out = split(table, TEST_SHARE, streams.generator("split", number))
        dealt = partition(
            train.y,
            question.parties,
            streams.generator("partition", number),
            kind=question.partition,
        )
        parts = dict(zip(question.names, dealt, strict=True))
        yield Split(number, train, tuple(_batches(held_out, question.queries)), parts)


def _batches(held_out: Table, queries: int) -> Iterator[Table]:
    """Yield equal batches; rows that would make a smaller one are not asked."""
    size = min(queries, len(held_out))
    for number in range(min(BATCHES_MAX, len(held_out) // size)):
        yield held_out.take(np.arange(number * size, (number + 1) * size))
