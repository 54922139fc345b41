"""The public rules of a prediction server, and its messages to clients and administrators."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.nodes.journal import Traffic
from veilring.privacy.accounting import individual_budget
from veilring.privacy.budgets import AMOUNT_MAX, Budgets
from veilring.privacy.checks import require, require_that, require_whole
from veilring.protocols.prediction.algorithm.directions import TAU, Kernel, require_quantised
from veilring.protocols.prediction.algorithm.filter import (
    STREAM_QUERIES_MIN,
    FilterParameters,
    public_sigma2,
)
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.promise import Facts, Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import CONTENT_BYTES_MAX, FRAME_BYTES_MAX, pack
from veilring.transport.messages import Array, Message

if TYPE_CHECKING:
    from veilring.protocols.prediction.system import IndKNN

NO_PLACE: Final = -1
"""The position in a receipt that names no record."""
KEYS_MAX: Final = 4096
"""The greatest number of keys in a status request, which the server looks up in milliseconds."""

DirectionArray = Annotated[NDArray[np.int16], Array("<i2", 2)]
"""Quantised vectors of shape (rows, features)."""
LabelArray = Annotated[NDArray[np.uint16], Array("<u2", 1)]
"""Class numbers of shape (rows,)."""


class PredictionRequest(Message, kind="prediction.request"):
    """A block of queries.

    Attributes:
        key: The client's name of this request. A repeated request has the same key, gets the same
            labels and is charged once.
        queries: The result of `quantise`, shape (queries, features).
    """

    key: RequestKey
    more: bool
    queries: DirectionArray

    @property
    def content(self) -> bytes:
        """The encoding of the queries, which determines the key."""
        return pack(self.queries)


class PredictionAnswer(Message, kind="prediction.answer"):
    """The server's answer, whose size is fixed and which depends on no record's budget.

    Attributes:
        left: The number of queries left, if they do not suffice; otherwise 0.
        labels: The labels, shape (queries,); all 0 unless the request is answered.
    """

    verdict: Annotated[int, Field(ge=0, le=max(RequestVerdict))]
    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    labels: LabelArray


class StatusRequest(Message, kind="prediction.look"):
    """A free request for the number of queries left and the status of earlier requests.

    Attributes:
        keys: The concatenated keys of up to `KEYS_MAX` requests.
    """

    keys: Annotated[bytes, Field(max_length=KEYS_MAX * REQUEST_KEY_BYTES)]
    more: bool


class StreamStatus(Message, kind="prediction.outlook"):
    """The reply to a status request, which contains no secrets of others.

    Attributes:
        left: The number of queries that the client may still ask, unless others use them up.
        answered: One byte for each key: 1 if the client's request with that key was answered.
    """

    left: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    answered: Annotated[bytes, Field(max_length=KEYS_MAX)]


class AddRequest(Message, kind="prediction.add"):
    """Records to add, all of them or none.

    Attributes:
        features: The result of `quantise`, shape (records, features).
    """

    ids: tuple[str, ...]
    labels: LabelArray
    features: DirectionArray
    more: bool


class ForgetRequest(Message, kind="prediction.forget"):
    """Records to forget, all of them or none."""

    ids: tuple[str, ...]
    more: bool


class ChangeReceipt(Message, kind="prediction.receipt"):
    """The receipt of an administrator's message: done and on disk, or refused as a whole.

    Attributes:
        changed: The number of records added or forgotten, without those that already were.
        place: The position of the first record that cannot be changed, because it exists with
            another row or, in a request to forget, never existed; otherwise `NO_PLACE`.
    """

    changed: Annotated[int, Field(ge=0)]
    place: Annotated[int, Field(ge=NO_PLACE)]


def stream_cost(blocks: Sequence[int], features: int) -> Forecast:
    """Forecast a stream: for each block one message each way, in two rounds.

    A request has about 90 bytes and `2 f` per query; an answer about 70 bytes and 2 per query. A
    refusal has the same size as an answer.
    """
    total = Traffic()
    for queries in blocks:
        block = np.zeros((queries, features), np.int16)
        request = PredictionRequest(key=bytes(REQUEST_KEY_BYTES), more=False, queries=block)
        answer = PredictionAnswer(verdict=0, left=0.0, labels=np.zeros(queries, np.uint16))
        total = total.plus(repeated(1, request)).plus(repeated(1, answer))
    return Forecast(2 * len(blocks), total)


Clients = Literal["together", "apart"]
"""The adversary of the promise: all clients together, who may share their answers; or each client
alone, with its own stream and its own budget at every record."""

STREAM_QUERIES: Final = 1000
"""The length of a stream for `queries = "auto"` if the number of queries is unknown."""
STREAM_QUERIES_MAX: Final = AMOUNT_MAX  # the ledger's greatest amount
LABEL_CLASSES_MAX: Final = 1 << 16  # a label has two bytes on the wire
# A request blocks all others: this many queries take seconds on a large table.
BLOCK_MAX: Final = 4096
# The payments for a request form one blob of 8 bytes per record, and SQLite's limit is 10**9 bytes.
# A request with more payers could not be charged, which would reveal their number.
RECORDS_MAX: Final = 100_000_000
_STEP_BYTES: Final = 2  # the size of a quantised feature


@dataclass(frozen=True, slots=True)
class ServerRules:
    """Ind-KNN and the public facts that it is bound to, equal for a server and its clients.

    Attributes:
        facts: The facts; with `queries = "auto"` their `queries` is the length of the stream.
        paid: The price that each record has paid before the stream, in the unit of zCDP, for an
            origin that was released with noise.
    """

    system: "IndKNN"
    facts: Facts
    paid: float = 0.0

    def __post_init__(self) -> None:
        system, features = self.system, self.facts.features
        require_whole("features", features, FRAME_BYTES_MAX)
        require_whole("classes", self.facts.classes, LABEL_CLASSES_MAX)
        require_that(
            self.fitting > 0,
            "features",
            f"a query with {features:,} features does not fit into one frame",
        )
        all_in_all = individual_budget(system.epsilon, system.delta, system.accountant)
        spendable = 0 < all_in_all <= AMOUNT_MAX
        require_that(
            spendable,
            "epsilon",
            f"the budgets of epsilon {system.epsilon} are outside of the range of a ledger",
        )
        allowed = f"at least 0 and below {all_in_all:g}, the total that a record may spend"
        require(0 <= self.paid < all_in_all, "paid", self.paid, allowed)
        _ = self.parameters

    @property
    def queries(self) -> int:
        """T, the length of the stream: of all clients together, or of each client."""
        asked, declared = self.facts.queries, self.system.queries
        if declared != "auto":
            return declared
        return STREAM_QUERIES if asked is None else max(STREAM_QUERIES_MIN, asked)

    @property
    def sigma2(self) -> float:
        """σ2, the noise of a vote per square root of the number of neighbours."""
        given = self.system.sigma2
        return public_sigma2(self.system.epsilon, self.queries) if given == "auto" else given

    @property
    def kernel(self) -> Kernel:
        """The similarity of two directions; `tau = "auto"` is `TAU` where no queries are known."""
        system = self.system
        return Kernel(system.kernel, TAU if system.tau == "auto" else system.tau, system.width)

    @property
    def budget(self) -> float:
        """B, the budget of each record for one stream, in the unit of zCDP."""
        system = self.system
        all_in_all = individual_budget(system.epsilon, system.delta, system.accountant)
        return nextafter(all_in_all - self.paid, 0) if self.paid else all_in_all

    @property
    def budgets(self) -> Budgets:
        """The ledger's budgets: a public one for queries, and a secret one for each record."""
        if self.system.clients == "apart":
            return Budgets("queries", analyst=self.queries, record=self.budget)
        return Budgets("queries", total=self.queries, record=self.budget)

    @property
    def fitting(self) -> int:
        """The greatest number of queries that fit a request."""
        room = CONTENT_BYTES_MAX // (_STEP_BYTES * self.facts.features)
        return min(self.system.block_max, room)

    @property
    def parameters(self) -> FilterParameters:
        """The parameters of the filter."""
        return FilterParameters(self.facts.classes, self.queries, self.budget, self.sigma2)

    def predictor(self) -> Predictor:
        """Return a predictor with these rules and no records."""
        return Predictor(self.parameters, self.kernel, self.facts.features)

    def check(self, request: PredictionRequest) -> None:
        """Check that a request obeys the rules."""
        count = len(request.queries)
        require_that(
            1 <= count <= self.fitting,
            "queries",
            f"there are {count} queries; 1 to {self.fitting} are possible at once",
        )
        require_quantised("queries", request.queries.astype(np.float32), self.facts.features)
