"""Small tables, streams of queries, and the rules and requests of a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from veilring.arrays import Ints
from veilring.nodes.party import Party
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import UNITS
from veilring.protocols.prediction.algorithm.directions import Kernel, quantise
from veilring.protocols.prediction.algorithm.filter import FilterParameters, PricedLabel
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.client import Stream, add_at_server, label_queries, make_request
from veilring.protocols.prediction.messages import PredictionRequest, ServerRules
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import PredictionServer
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


def predictor(
    parameters: FilterParameters, kernel: Kernel, rows: Table, **options: Any
) -> Predictor:
    """Return a predictor whose records have full budgets, and the ids 100, 101, ..."""
    made = Predictor(parameters, kernel, rows.features.shape[1], **options)
    count = len(rows.labels)
    budgets = np.full(count, int(parameters.budget * UNITS))
    made.add(np.arange(100, 100 + count), rows.features, rows.labels, budgets)
    return made


def answers(
    made: Predictor, queries: NDArray[np.float32], block: int, seed: int
) -> list[PricedLabel]:
    """Answer queries in blocks of the given size."""
    rng, found = np.random.default_rng(seed), list[PricedLabel]()
    for first in range(0, len(queries), block):
        found += made.answer_block(queries[first : first + block], rng)
    return found


def same(one: list[PricedLabel], other: list[PricedLabel]) -> bool:
    """Return whether all labels, and each record's payments, are equal."""

    def paid(answer: PricedLabel) -> dict[int, int]:
        return dict(zip(answer.payers.tolist(), answer.units.tolist(), strict=True))

    return len(one) == len(other) and all(
        (a.label, paid(a)) == (b.label, paid(b)) for a, b in zip(one, other, strict=True)
    )


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
    path = None
    if folder is not None:
        folder.mkdir(exist_ok=True)
        path = folder / STATE
    with open_state(rules, path, new=path is not None and not path.exists()) as state:
        if records is not None:
            state.add(records)
        yield state


def everything(folder: Path) -> bytes:
    """Return the content of all files of a server."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def predict(
    party: Party, own: object, *, rules: ServerRules, block: int, server: str = "server"
) -> Ints | None:
    """Play the server if the party's data are records, and a client if they are queries."""
    if party.me == server:
        assert isinstance(own, LabelledRecords)
        with opened(rules, None, own) as state:
            (client,) = party.peers
            await PredictionServer(state, run_inline).answer(party, client)
        return None
    assert isinstance(own, np.ndarray)
    return await label_queries(party, own, rules=rules, block=block)


async def adaptive(party: Party, own: object, *, rules: ServerRules) -> Ints | None:
    """Ask one query at a time; each label selects the next query."""
    if not isinstance(own, np.ndarray):
        return await predict(party, own, rules=rules, block=1)
    stream, at, labels = Stream(party, rules), 0, list[int]()
    for more in (True, True, True, False):
        (label,) = await stream.ask(make_request(own[at : at + 1], more=more))
        labels.append(int(label))
        at += 1 + int(label)
    return np.array(labels)


async def curate(party: Party, own: LabelledRecords | None, *, rules: ServerRules) -> int:
    """Play the administrator if given records, and otherwise the server, which counts its own."""
    if own is not None:
        return await add_at_server(party, own)
    with opened(rules, None) as state:
        (administrator,) = party.peers
        await PredictionServer(state, run_inline, [administrator]).add(party, administrator)
        return len(state)


def labels(
    state: ServerState, asked: list[PredictionRequest], *, seed: int = 0, who: str = "ann"
) -> list[int]:
    """Ask, each request with its own generator, and return all labels."""
    found: list[int] = []
    for number, request in enumerate(asked):
        answer = state.answer(who, request, np.random.default_rng([seed, number]))
        assert answer.verdict == RequestVerdict.ANSWERED
        found += answer.labels.tolist()
    return found
