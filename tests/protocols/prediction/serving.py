"""Small tables, streams of queries, and the rules and requests of a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.prediction.client import make_request
from veilring.protocols.prediction.messages import PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.state import ServerState, open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts
from veilring.protocols.requests import RequestVerdict


class Table(NamedTuple):
    """Quantised rows with labels."""

    features: NDArray[np.float32]
    labels: Ints

    def take(self, rows: slice) -> "Table":
        """Return some of the rows."""
        return Table(self.features[rows], self.labels[rows])


def clustered(rows: int, features: int, classes: int, rng: Generator) -> Table:
    """Draw directions around one centre for each class."""
    labels = rng.integers(0, classes, rows)
    centres = rng.standard_normal((classes, features))
    return Table(quantise(centres[labels] + rng.standard_normal((rows, features))), labels)


FEATURES = 12
STATE = "state.db"
"""The name of a server's file in its folder."""


def make_rules(**changed: Any) -> ServerRules:
    """Return rules under which records spend much on each answer."""
    given = {"queries": 60, "epsilon": 2.0, "tau": 0.3, "sigma2": 0.3, **changed}
    return IndKNN(**given).bind(Facts(1, FEATURES, 3))


def table(rows: int, seed: int = 1) -> LabelledRecords:
    """Draw records with searchable ids."""
    made = clustered(rows, FEATURES, 3, np.random.default_rng(seed))
    ids = [f"patient-{seed}-{number:05}" for number in range(rows)]
    return LabelledRecords.of(ids, made.features, made.labels)


def queries(count: int, seed: int = 2) -> Table:
    """Draw queries from the same centres as `table`."""
    return clustered(count, FEATURES, 3, np.random.default_rng(seed))


def requests(count: int, block: int, seed: int = 2) -> list[PredictionRequest]:
    """Return requests of the given number of queries each."""
    drawn = queries(count * block, seed).features
    return [make_request(part) for part in np.split(drawn, count)]


@contextmanager
def opened(
    rules: ServerRules, folder: Path | None, records: LabelledRecords | None = None
) -> Iterator[ServerState]:
    """Open a server's files, and add records if given."""
    path = None if folder is None else folder / STATE
    if folder is not None:
        folder.mkdir(exist_ok=True)
    with open_state(rules, path, new=path is not None and not path.exists()) as state:
        if records is not None:
            state.add(records)
        yield state


def labels(
    state: ServerState,
    asked: list[PredictionRequest],
    *,
    seed: int = 0,
    who: str = "ann",
    first: int = 0,
) -> list[int]:
    """Ask, each request with the generator of its number, and return all labels."""
    found: list[int] = []
    for number, request in enumerate(asked, first):
        answer = state.answer(who, request, np.random.default_rng([seed, number]))
        assert answer.verdict == RequestVerdict.ANSWERED
        found += answer.labels.tolist()
    return found
