"""One batch of each system, ready to be played by its networked roles on a cluster.

The parties that hold the rows are `party-0` and so on; the first of them asks. What no party of
theirs does (to collect reports, to hold all rows) is done by `server`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.data.table import Rows
from veilring.nodes.offload import run_inline
from veilring.nodes.party import Party
from veilring.nodes.run import Run
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.forecast import Forecast
from veilring.protocols.ldp import ClientPool, Survey, Task, gather, gather_cost
from veilring.protocols.ldp.messages import ID_BYTES, ReportBatch
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters
from veilring.protocols.noisyvotes.messages import votes_cost
from veilring.protocols.noisyvotes.roles import private_votes
from veilring.protocols.prediction.messages import stream_cost
from veilring.protocols.prediction.querier import label_queries
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.rules import ServerRules
from veilring.protocols.prediction.server import PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.radius.analyst import ask_within, request_labels
from veilring.protocols.radius.messages import LabelRequest, label_cost
from veilring.protocols.radius.owner import Owner
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.ring.cost import knn_cost
from veilring.protocols.ring.roles import KNNParameters, private_knn

SERVER: Final = "server"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stage:
    """Who takes part in a batch, with what, and what it has to cost.

    Attributes:
        parties: Their names.
        own: What each begins with: secret.
        role: What all of them play.
        forecast: The closed form of what it costs. It is given the run, since what clients draw in
            secret decides how their reports are bundled.
        public: What every party's role is given.
        only: What one party alone is given.
        watch: Whose views the forecast needs.
    """

    parties: tuple[str, ...]
    own: tuple[object, ...]
    role: Callable[..., Any]
    forecast: Callable[[Run[Any]], Forecast]
    public: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    watch: tuple[str, ...] = ()


def ring(
    parts: Mapping[str, Rows], queries: NDArray[np.float64], parameters: KNNParameters
) -> Stage:
    """Return PP-kNN on a batch; the parties draw their ring."""
    asker = next(iter(parts))
    return Stage(
        parties=tuple(parts),
        own=tuple(parts.values()),
        role=private_knn,
        forecast=lambda _run: knn_cost(len(parts), len(queries), parameters),
        public={"asker": asker, "parameters": parameters},
        only={asker: {"queries": queries}},
    )


def votes(
    parts: Mapping[str, Rows], queries: NDArray[np.float64], parameters: NoisyVotesParameters
) -> Stage:
    """Return votes with noise on a batch, within a public radius."""
    asker = next(iter(parts))
    return Stage(
        parties=tuple(parts),
        own=tuple(parts.values()),
        role=private_votes,
        forecast=lambda _run: votes_cost(len(parts), len(queries), parameters),
        public={"asker": asker, "parameters": parameters},
        only={asker: {"queries": queries}},
    )


def collection(parts: Mapping[str, Rows], survey: Survey) -> Stage:
    """Return the collection of one report a row; the clients of a party are one pool."""
    task = Task(terms={}, survey=survey)
    pools = [ClientPool(rows.features, rows.labels) for rows in parts.values()]
    return Stage(
        parties=(SERVER, *parts),
        own=(None, *pools),
        role=gather,
        forecast=lambda run: gather_cost(task, _drawn_questions(run, tuple(parts), task)),
        public={"aggregator": SERVER, "task": task},
        watch=(SERVER,),
    )


def owner(
    rows: Rows, queries: NDArray[np.float64], radii: NDArray[np.float64], rules: OwnerRules
) -> Stage:
    """Return a batch that the first party has labelled by an owner of all rows."""
    request = ask_within(queries, radii, rules.epsilon_max)
    count, features = queries.shape
    return Stage(
        parties=(SERVER, "party-0"),
        own=(rows, request),
        role=_label_by_owner,
        forecast=lambda _run: label_cost(count, features),
        public={"rules": rules},
    )


def stream(records: LabelledRecords, queries: NDArray[np.float32], rules: ServerRules) -> Stage:
    """Return a stream that the first party has answered by a server of all rows, block by block."""
    count, features = queries.shape
    full, rest = divmod(count, rules.fitting)
    blocks = [rules.fitting] * full + [rest] * (rest > 0)
    return Stage(
        parties=(SERVER, "party-0"),
        own=(records, _Asked(queries)),
        role=_answer_stream,
        forecast=lambda _run: stream_cost(blocks, features),
        public={"rules": rules},
    )


class _Asked(NamedTuple):
    """What a querier begins with."""

    queries: NDArray[np.float32]


async def _label_by_owner(party: Party, own: Rows | LabelRequest, *, rules: OwnerRules) -> object:
    """Ask, or answer from a ledger that lasts as long as the batch."""
    (other,) = party.peers
    if isinstance(own, LabelRequest):
        return await request_labels(party, own, rules=rules)
    with open_ledger(None, Budgets(total=rules.epsilon_max)) as ledger:
        await Owner(own, rules, ledger, run_inline).answer(party, other)
    return None


async def _answer_stream(
    party: Party, own: LabelledRecords | _Asked, *, rules: ServerRules
) -> object:
    """Ask, or answer from files that are in memory only."""
    (other,) = party.peers
    if isinstance(own, _Asked):
        return await label_queries(party, own.queries, rules=rules, block=rules.fitting)
    with open_state(rules, None) as state:
        state.add(own)
        await PredictionServer(state, run_inline).answer(party, other)
    return None


def _drawn_questions(run: Run[Any], clients: tuple[str, ...], task: Task) -> list[list[int]]:
    """Return how many clients of each party drew each question, as the server saw it."""
    drawn = {name: [0] * len(task.survey.questions) for name in clients}
    for seen in run.views[SERVER].received:
        if isinstance(seen.message, ReportBatch):
            drawn[seen.sender][seen.message.question] += len(seen.message.ids) // ID_BYTES
    return list(drawn.values())
