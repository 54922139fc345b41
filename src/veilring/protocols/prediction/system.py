"""Ind-KNN as a system: a server of private records labels a stream of queries by noisy votes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Rows
from veilring.errors import InputError, StoreFailed
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.nodes.service import run_inline
from veilring.privacy.accounting import ZCDP, Accountant, GaussianDP
from veilring.privacy.budgets import budget_units
from veilring.protocols.claims import EXAMPLE_PARTIES, Argument, Example
from veilring.protocols.prediction.algorithm.directions import (
    BLOCK,
    PAPER_WIDTH,
    TAU,
    TAU_RULE,
    WIDTH_MAX,
    Kernel,
    KernelName,
    public_tau,
    quantise,
    tau_share,
)
from veilring.protocols.prediction.algorithm.filter import (
    SIGMA2_RULE,
    SIGMA_MAX,
    SIGMA_MIN,
    STREAM_QUERIES_MIN,
)
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.client import label_queries
from veilring.protocols.prediction.messages import (
    BLOCK_MAX,
    STREAM_QUERIES_MAX,
    Clients,
    ServerRules,
    stream_cost,
)
from veilring.protocols.prediction.records import LabelledRecords
from veilring.protocols.prediction.server import PredictionServer
from veilring.protocols.prediction.state import open_state
from veilring.protocols.promise import (
    Facts,
    Forecast,
    Promise,
    Spent,
    batch_sizes,
    in_batches,
    public_rows,
)
from veilring.protocols.system import PARTIES, SERVER, Play, ServerSetup, System, Tunable, together

_CENTRE: Final = 0.5  # the middle of the public ranges

_TAUS: Final = Tunable.of(0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_SIGMAS: Final = Tunable.of(0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
_Stream = Annotated[int, Field(ge=STREAM_QUERIES_MIN, le=STREAM_QUERIES_MAX)]


class IndKNN(System):
    """A server that labels a stream of queries by noisy votes of the records near each query.

    Rows and queries become directions from the middle of the public ranges. Each record has its own
    budget, pays from it for the queries that it is near, and stops voting when the budget is
    exhausted. Each batch of queries is a separate stream with fresh budgets.

    Attributes:
        name: `ind-knn`.
        epsilon: The ε of all answers of a stream.
        delta: The δ of the same answers; choose it far below 1 / (number of rows).
        queries: T, the number of queries of a stream, declared in advance. The longer the stream,
            the less a record can contribute to each query. `auto` is the number of queries asked.
        clients: The adversary of the promise: all clients `together`, or each of them `apart`,
            with its own stream and budgets.
        accountant: The method that derives a record's budget from ε and δ: exact Gaussian
            accounting (`gdp`), or that of the paper (`rdp`).
        kernel: The similarity of two directions: the cosine, or `exp(-|x - q|² / ν²)` (`rbf`).
        tau: τ, the minimum kernel value of a neighbour. `auto` follows from
            the first queries of a stream, ε and the public numbers of features and records.
        width: ν², for `rbf`.
        sigma2: σ2, the noise of a vote per square root of the number of neighbours. `auto` follows
            from ε and the length of the stream.
        block_max: The maximum number of queries in a request.
    """

    has_owner: ClassVar[bool] = True
    trust: ClassVar[str] = "a server"
    title: ClassVar[str] = "Ind-KNN, server"
    summary: ClassVar[str] = (
        "A server labels a stream of queries by noisy votes, charging each record that votes."
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        "budget": Argument(
            "Each record pays for every query on which it votes until its budget is exhausted.",
            "Each record has a filter whose budget is charged before an answer leaves:"
            " tests/protocols/prediction/test_filter.py.",
        ),
        "adaptive clients": Argument(
            "The guarantee also holds for queries that depend on earlier answers.",
            "Individual privacy filters allow for adaptive queries (Feldman and Zrnic"
            " 2021): docs/protocols/ind-knn.md.",
        ),
    }
    renamed = MappingProxyType({"queriers": "clients"})

    deployment: ClassVar[str] = "veilring.deployment.prediction"
    name: Literal["ind-knn"] = "ind-knn"
    epsilon: float = Field(1.0, gt=0, allow_inf_nan=False)
    delta: float = Field(1e-5, gt=0, lt=1)
    queries: _Stream | Literal["auto"] = "auto"
    clients: Clients = "together"
    accountant: Accountant = "gdp"
    kernel: KernelName = "cosine"
    tau: Annotated[Annotated[float, Field(gt=0, le=1)] | Literal["auto"], _TAUS] = "auto"
    width: float = Field(PAPER_WIDTH, gt=0, le=WIDTH_MAX)
    sigma2: Annotated[
        Annotated[float, Field(ge=SIGMA_MIN, le=SIGMA_MAX)] | Literal["auto"], _SIGMAS
    ] = "auto"
    block_max: int = Field(BLOCK, ge=1, le=BLOCK_MAX)

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        apart = self.clients == "apart"
        return Promise(
            protects="each record of the prediction server",
            against="each client individually, if clients do not collude"
            if apart
            else "all clients together, and anyone they share answers with",
            threat_model="a server trusted with all rows; clients may be malicious, with queries"
            " chosen adaptively",
            adjacency="one record added or removed",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="stream",
            measure="(ε, δ)-DP",
            learned="the client: the label of each query; the server: the queries",
            note="The bound assumes exact Gaussian noise, but the noise is drawn as"
            " double-precision floats. The response time is not protected."
            + " The number of records is public."
            * (self.tau == "auto"),
        )

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        rules = self.bind(replace(facts, queries=queries))
        return in_batches(lambda count: _stream_cost(count, rules), queries, rules.queries)

    def bind(self, facts: Facts, *, paid: float = 0.0) -> ServerRules:
        """Return the rules of server and clients; raise `InputError` if they do not fit the facts.

        Args:
            facts: The facts, whose `queries` is the number of a stream, if known.
        """
        return ServerRules(self, facts, paid)

    @override
    def rule(self, facts: Facts) -> str:
        tau, sigma2 = f"τ = {self.tau}", f"σ2 = {self.sigma2}"
        if self.tau == "auto":
            share = tau_share(facts.features, public_rows(facts.rows, "tau"), self.epsilon)
            tau = (
                f"this share of all pairs of queries reaches τ: {TAU_RULE} = {share:.3g} at"
                f" ε = {self.epsilon:g}"
            )
        if self.sigma2 == "auto":
            sigma2 = f"σ2 = {SIGMA2_RULE} for streams of T, a batch"
        return f"{self.kernel} about the middle of the ranges; {tau}; {sigma2}"

    @override
    def example(self, *, parties: int = EXAMPLE_PARTIES) -> Example:
        """Return an example whose stream repeats one query until budgets are exhausted."""
        example = super().example(parties=parties)
        return example.asking(np.repeat(example.queries, STREAM_QUERIES_MIN, axis=0))

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "IndKNNSetup":
        return IndKNNSetup(self, parts, facts)


class IndKNNSetup(ServerSetup):
    """A prediction server with all rows and a client, the first of the parties that held them.

    Args:
        centre: The public point from which directions are measured, features in [0, 1]; by default
            the middle of the ranges.
    """

    observed: ClassVar[str] = "the noisy counts and votes behind the labels"

    def __init__(
        self,
        system: IndKNN,
        parts: Mapping[str, Rows],
        facts: Facts,
        *,
        centre: Floats | float = _CENTRE,
    ) -> None:
        super().__init__(system, parts, facts)
        self._asked, self._centre = system, centre
        self.rules(STREAM_QUERIES_MIN)  # refuses unfit rows now, not at the first batch
        if system.tau == "auto":
            public_rows(facts.rows, "tau")
        rows = together(parts)
        ids = [f"row-{number}" for number in range(len(rows))]
        self.records = LabelledRecords.of(ids, self.directions(rows.features), rows.labels)

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return self.records, None

    @property
    @override
    def role(self) -> Callable[..., Awaitable["Ints | None"]]:
        return label_stream

    @property
    @override
    def batch_max(self) -> int:
        queries = self._asked.queries
        return STREAM_QUERIES_MAX if queries == "auto" else queries

    def rules(self, queries: int, directions: NDArray[np.float32] | None = None) -> ServerRules:
        """Return the rules of a stream."""
        facts, asked = self.facts, self._asked
        if asked.tau == "auto" and directions is not None:
            share = tau_share(facts.features, public_rows(facts.rows, "tau"), asked.epsilon)
            tau = public_tau(directions, Kernel(asked.kernel, TAU, asked.width), share)
            asked = asked.replaced(tau=tau)
        # The number of rows is public only for τ, which a client gets as a number.
        return asked.bind(replace(facts, queries=queries, rows=None))

    def directions(self, features: Floats) -> NDArray[np.float32]:
        """Return rows in the server's format, as directions from the centre.

        A row at the centre has no direction; the diagonal is used instead.
        """
        away = features - self._centre
        away[~away.any(axis=1)] = 1.0
        return quantise(away)

    def open_stream(self, directions: NDArray[np.float32]) -> Predictor:
        """Return a predictor for a new stream, whose records have their full budgets."""
        rules, count = self.rules(len(directions), directions), len(self.records)
        units = np.full(count, budget_units(rules.budget, field="epsilon"))
        labels = self.records.labels.astype(np.int64)
        predictor = rules.predictor()
        predictor.add(np.arange(count), self.records.directions, labels, units)
        return predictor

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        directions = self.directions(queries)
        rules = self.rules(len(queries), directions)
        forecast = _stream_cost(len(queries), rules)
        return Play(
            forecast=lambda _run: forecast,
            labels=lambda result: cast("Ints", result),
            learners=(self.client,),
            public={"rules": rules},
            only={self.client: {"queries": directions}},
        )

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        directions = self.directions(queries)
        answers = self.open_stream(directions).answer_block(directions, rng)
        return np.array([answer.label for answer in answers], np.int64)

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats:
        """Draw the noisy counts and votes of a stream, for which the records pay.

        Labels reveal so little of them that an audit of labels would miss a wrong account.
        """
        directions = self.directions(queries)
        predictor = self.open_stream(directions)
        budgets, drawn = predictor.remaining, []
        for _ in range(runs):
            predictor.restock(budgets)
            answers = predictor.answer_block(directions, rng)
            drawn.append(np.concatenate([answer.noisy for answer in answers]))
        return np.array(drawn)

    @override
    def spent(self, batches: int) -> Spent:
        """Return the total loss of all streams: each record may spend its budget in each stream."""
        asked = self._asked
        if batches <= 1:
            return Spent(asked.epsilon * batches, asked.delta, batches, "stream")
        budget = batches * self.rules(STREAM_QUERIES_MIN).budget
        if asked.accountant == "rdp":
            epsilon = ZCDP(budget).epsilon(asked.delta)
        else:
            epsilon = GaussianDP(float(np.sqrt(2 * budget))).epsilon(asked.delta)
        return Spent(epsilon, asked.delta, batches, "stream")


async def label_stream(
    party: Party,
    records: LabelledRecords | None,
    *,
    rules: ServerRules,
    queries: NDArray[np.float32] | None = None,
) -> Ints | None:
    """Request the labels of a stream as the client, or answer it from files in memory.

    Args:
        queries: The client's directions, shape (queries, features).

    Returns:
        The labels at the client, as class numbers, shape (queries,).
    """
    (other,) = party.peers
    if party.me != SERVER:
        if queries is None:
            raise InputError.because("there are no queries; give at least one", field="queries")
        return await label_queries(party, queries, rules=rules, block=rules.fitting)
    if records is None:
        raise StoreFailed("the server restarted without its records")
    with open_state(rules, None) as state:
        state.add(records)
        await PredictionServer(state, run_inline).answer(party, other)
    return None


def _stream_cost(queries: int, rules: ServerRules) -> Forecast:
    """Return the cost of one stream in requests of the greatest size."""
    return stream_cost(batch_sizes(queries, rules.fitting), rules.facts.features)
