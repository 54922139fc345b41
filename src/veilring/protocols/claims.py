"""The input of an audit: an example of a system, comparisons of two worlds, and arguments.

A comparison states a system's promise for two inputs: that observers cannot distinguish them at
all, that no event is more than e^ε times as likely with one as with the other, or that nothing
bounds the difference. An audit plays both worlds many times and measures the difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import numpy as np

from veilring.arrays import Floats
from veilring.data.table import Rows

EXAMPLE_PARTIES: Final = 3
"""Parties of an example: some pool their views, and two others are left to be told apart."""
_ROWS_EACH: Final = 3
_FAR: Final = 0.3
"""Rows of an example lie below this in each feature, except one, at the query."""
_NEAR: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Example:
    """Rows and queries that an audit runs a system on.

    Attributes:
        parts: The rows of each party, by its name.
        queries: The queries of one batch, shape (queries, features), in [0, 1].
    """

    parts: Mapping[str, Rows]
    queries: Floats

    @property
    def rows(self) -> int:
        """The number of rows of all parties together."""
        return sum(map(len, self.parts.values()))

    def holding(self, party: str, rows: Rows) -> "Example":
        """Return the world in which a party holds other rows."""
        return Example({**self.parts, party: rows}, self.queries)

    def led_by(self, parties: tuple[str, ...]) -> "Example":
        """Return the world in which these parties hold the rows of the first ones.

        The other parties hold the other rows, in order.
        """
        order = (*parties, *(name for name in self.parts if name not in parties))
        rows = dict(zip(order, self.parts.values(), strict=True))
        return Example({name: rows[name] for name in self.parts}, self.queries)

    def asking(self, queries: Floats) -> "Example":
        """Return the world in which other queries are asked."""
        return Example(self.parts, queries)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Two worlds, and how far observers may tell them apart.

    Attributes:
        difference: The difference between the worlds, as a noun phrase.
        epsilon: The bound on the privacy loss between the views; 0 where their
            distributions are equal, and infinite where the promise bounds nothing.
        delta: The probability that comes with it.
        long: The name of the comparison, if its views are so long that only a full audit compares
            them, with a quarter of the runs; otherwise empty.
    """

    difference: str
    one: Example
    other: Example
    epsilon: float
    delta: float = 0.0
    long: str = ""

    @property
    def is_bounded(self) -> bool:
        """Whether the promise bounds what is learned."""
        return self.epsilon < inf


class Argument(NamedTuple):
    """The reason for a claim that no run can test."""

    promised: str
    """The claim, as a sentence."""
    reason: str
    """The proof or the test that carries it, as one or two sentences."""


def make_example(parties: int = EXAMPLE_PARTIES) -> Example:
    """Return a small example: rows with two features and two classes, and one query.

    The last party holds a row at the query, and all other rows are far from it, so that this row
    decides the label. All rows of the last party have class 1; those of the others have both.

    Args:
        parties: The number of parties that hold rows, at least 2.
    """
    rng = np.random.default_rng(0)
    parts = {
        f"party-{number}": Rows(
            rng.uniform(0.0, _FAR, (_ROWS_EACH, 2)), (np.arange(_ROWS_EACH) + number) % 2
        )
        for number in range(parties)
    }
    last = f"party-{parties - 1}"
    parts[last].features[0], parts[last].labels[:] = _NEAR, 1
    return Example(parts, np.full((1, 2), _NEAR))


def exchange_rows(example: Example, *, epsilon: float = 0.0) -> Comparison:
    """Compare an example with the one in which the last two parties have exchanged their rows.

    Every function of the rows of all parties together is equal in both.
    """
    *_, one, other = example.parts
    parts = {**example.parts, one: example.parts[other], other: example.parts[one]}
    return Comparison(
        "which of two parties holds which rows", example, Example(parts, example.queries), epsilon
    )


def remove_row(example: Example, *, epsilon: float, delta: float) -> Comparison:
    """Compare an example with the one in which the last party lacks its first row."""
    party, rows = list(example.parts.items())[-1]
    fewer = example.holding(party, Rows(rows.features[1:], rows.labels[1:]))
    return Comparison("the presence of a row", example, fewer, epsilon, delta)


def replace_row(example: Example, *, epsilon: float) -> Comparison:
    """Compare two worlds in which the only row of the last party differs in all its values."""
    party, rows = list(example.parts.items())[-1]
    alone = Rows(rows.features[:1], rows.labels[:1])
    opposite = Rows(1 - alone.features, 1 - alone.labels)
    one, other = (example.holding(party, each) for each in (alone, opposite))
    return Comparison("the row of a client", one, other, epsilon)


def replace_query(example: Example, *, epsilon: float) -> Comparison:
    """Compare an example with the one in which the opposite query is asked."""
    return Comparison("the query", example, example.asking(1 - example.queries), epsilon)
