"""The public rules of a prediction server, and its messages to clients and administrators."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, nextafter
from typing import Annotated, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.errors import InputError
from veilring.nodes.journal import Traffic
from veilring.privacy.accounting import Accountant, individual_budget
from veilring.privacy.budgets import AMOUNT_MAX, Budgets
from veilring.privacy.checks import require, require_that
from veilring.protocols.prediction.algorithm.directions import BLOCK, Kernel, require_quantised
from veilring.protocols.prediction.algorithm.filter import STREAM_QUERIES_MIN, FilterParameters
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.promise import Forecast, repeated
from veilring.protocols.requests import REQUEST_KEY_BYTES, RequestKey, RequestVerdict
from veilring.transport.frames import CONTENT_BYTES_MAX, FRAME_BYTES_MAX, pack
from veilring.transport.messages import Array, Message

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
        key: The client's name of this request, `KEY_BYTES` long. A repeated request has the same
            key, gets the same labels and is charged once.
        more: Whether another request follows in this session.
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
        verdict: The number of a `Verdict`.
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
        more: Whether another status request follows in this session.
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
        ids: The id of each record.
        labels: The label of each record, shape (records,).
        features: The result of `quantise`, shape (records, features).
        more: Whether another message follows in this session.
    """

    ids: tuple[str, ...]
    labels: LabelArray
    features: DirectionArray
    more: bool


class ForgetRequest(Message, kind="prediction.forget"):
    """Records to forget, all of them or none.

    Attributes:
        ids: The ids of the records.
        more: Whether another message follows in this session.
    """

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
    """The public rules of a prediction server, which its clients must know as well.

    Attributes:
        queries: T, the length of the stream, declared in advance, at least 4. It limits the
            queries of all clients together, or of each client.
        sigma2: σ2, the noise of a vote per square root of the number of neighbours.
        accountant: The accountant, `gdp` or `rdp`: see `individual_budget`. Both are valid.
        clients: The adversary of the promise: all clients together, or each client alone.
        paid: The price that each record has paid before the stream, in the unit of zCDP, for an
            origin that was released with noise.
    """

    features: int
    classes: int
    queries: int
    epsilon: float
    sigma2: float
    delta: float = 1e-5
    kernel: Kernel = field(default_factory=Kernel)
    accountant: Accountant = "gdp"
    clients: Clients = "together"
    block_max: int = BLOCK
    paid: float = 0.0

    def __post_init__(self) -> None:
        _require_whole("features", self.features, FRAME_BYTES_MAX)
        _require_whole("classes", self.classes, LABEL_CLASSES_MAX)
        _require_whole("queries", self.queries, STREAM_QUERIES_MAX, least=STREAM_QUERIES_MIN)
        _require_whole("block_max", self.block_max, BLOCK_MAX)
        for name, value, kind in (
            ("accountant", self.accountant, Accountant),
            ("clients", self.clients, Clients),
        ):
            require(value in get_args(kind), name, value, ", ".join(get_args(kind)))
        for name, number in (("epsilon", self.epsilon), ("sigma2", self.sigma2)):
            require(isfinite(number) and number > 0, name, number, "a finite number above 0")
        require_that(
            self.fitting > 0,
            "features",
            f"a query with {self.features:,} features does not fit into one frame",
        )
        all_in_all = individual_budget(self.epsilon, self.delta, self.accountant)
        spendable = 0 < all_in_all <= AMOUNT_MAX
        require_that(
            spendable,
            "epsilon",
            f"the budgets of epsilon {self.epsilon} are outside of the range of a ledger",
        )
        allowed = f"at least 0 and below {all_in_all:g}, the total that a record may spend"
        require(0 <= self.paid < all_in_all, "paid", self.paid, allowed)
        _ = self.parameters

    @property
    def budget(self) -> float:
        """B, the budget of each record for one stream, in the unit of zCDP."""
        all_in_all = individual_budget(self.epsilon, self.delta, self.accountant)
        return nextafter(all_in_all - self.paid, 0) if self.paid else all_in_all

    @property
    def budgets(self) -> Budgets:
        """The ledger's budgets: a public one for queries, and a secret one for each record."""
        if self.clients == "apart":
            return Budgets("queries", analyst=self.queries, record=self.budget)
        return Budgets("queries", total=self.queries, record=self.budget)

    @property
    def fitting(self) -> int:
        """The greatest number of queries that fit a request."""
        room = CONTENT_BYTES_MAX // (_STEP_BYTES * self.features)
        return min(self.block_max, room)

    @property
    def parameters(self) -> FilterParameters:
        """The parameters of the filter."""
        return FilterParameters(self.classes, self.queries, self.budget, self.sigma2)

    def predictor(self) -> Predictor:
        """Return a predictor with these rules and no records."""
        return Predictor(self.parameters, self.kernel, self.features)

    def check(self, request: PredictionRequest) -> None:
        """Check that a request obeys the rules."""
        count = len(request.queries)
        require_that(
            1 <= count <= self.fitting,
            "queries",
            f"there are {count} queries; 1 to {self.fitting} are possible at once",
        )
        require_quantised("queries", request.queries.astype(np.float32), self.features)


def _require_whole(name: str, value: int, most: int, *, least: int = 1) -> None:
    if not least <= value <= most:
        raise InputError(name, value, f"a whole number from {least} to {most:,}")
