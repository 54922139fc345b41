"""Ind-KNN, a prediction server whose records each have a budget, as a scikit-learn estimator."""

import warnings
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators.base import BatchClassifier, RangesLike, Seed, number, whole
from veilring.estimators.privacy import Privacy, PrivacyLeakWarning
from veilring.estimators.session import Answered, blocks
from veilring.privacy.accounting import ZCDP, Accountant, GaussianDP, doubt_of_delta
from veilring.privacy.ledger import UNITS
from veilring.protocols.prediction.algorithm.features import quantise
from veilring.protocols.prediction.algorithm.filter import STREAM_QUERIES_MIN
from veilring.protocols.prediction.algorithm.kernels import PAPER_WIDTH, Kernel, KernelName
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.messages import stream_cost
from veilring.protocols.prediction.rules import ServerRules


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """The stream that is open: who answers it, its number, and how many queries of it are left."""

    predictor: Predictor
    number: int = 0
    left: int = 0


class IndKNNClassifier(BatchClassifier):
    """Kernel votes of private records, each of which pays for what it says and then falls silent.

    The queries of a `predict` are a stream, or, if `queries` declares a longer one, a part of it.
    What comes next goes on with what the records have left, as long as the stream has room for the
    whole batch. Else a new stream begins, for which all records have a fresh budget; what both
    tell together is more than `epsilon`, and `privacy_` says how much.

    Rows and queries become directions from a public centre, which is the middle of the ranges
    unless given, and never the rows' own mean. One that lies there has no direction, and is given
    that of the diagonal.

    Args:
        epsilon: What a stream may spend, above 0.
        delta: The probability that comes with it, in (0, 1); a warning is shown above 0.001 or one
            in the number of rows.
        sigma2: The noise of a vote per square root of the neighbours.
        tau: The least value of the kernel at which a row is a neighbour, above 0 and up to 1.
        kernel: How alike two directions are: `cosine` or `rbf`.
        width: ν², for `rbf`.
        queries: T, how many queries a stream has, at least 4; by default as many as the batch that
            begins it. The longer, the less a record can say to each.
        accountant: `gdp`, or the paper's `rdp`: see `individual_budget`.
        centre: Where directions are taken from, in the unit of the rows; public.
        ranges: The public range of each feature, or one for all. By default that of the rows, which
            reveals something of them: then `fit` warns, and no ε holds. What lies outside is moved
            to its ends.
        random_state: A seed for experiments, under which no ε holds. By default the server's
            randomness is cryptographic.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        ranges_origin_: Where the ranges came from.
    """

    def __init__(  # noqa: PLR0913  (scikit-learn takes each parameter as an argument)
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        sigma2: float = 2.0,
        tau: float = 0.7,
        kernel: KernelName = "cosine",
        width: float = PAPER_WIDTH,
        queries: int | None = None,
        accountant: Accountant = "gdp",
        centre: ArrayLike | None = None,
        ranges: RangesLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.sigma2 = sigma2
        self.tau = tau
        self.kernel = kernel
        self.width = width
        self.queries = queries
        self.accountant = accountant
        self.centre = centre
        self.ranges = ranges
        self.random_state = random_state

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        self._middle = np.full((1, rows.features.shape[1]), 0.5)
        if self.centre is not None:
            self._middle = self._ranges.to_unit(np.asarray(self.centre, np.float64)[None])
        self._records, self._labels = self._directed(rows.features), rows.labels
        self._declared = None if self.queries is None else whole("queries", self.queries)
        self._rules = self._given_rules()
        if doubt := doubt_of_delta(self._rules.delta, len(rows)):
            warnings.warn(f"{doubt}.", PrivacyLeakWarning, stacklevel=4)
        self._stream = _Stream(self._rules.predictor())

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        asked, stream = self._directed(queries), self._stream
        if stream.left < len(queries):
            self._begin_stream(len(queries))
        stream.left -= len(queries)
        labels = [answer.label for answer in stream.predictor.answer_block(asked, rng)]
        sizes = [len(part) for part in blocks(asked, self._rules.fitting)]
        return Answered(np.array(labels), stream_cost(sizes, queries.shape[1]))

    def _begin_stream(self, count: int) -> None:
        """Give all records a fresh budget."""
        declared = max(STREAM_QUERIES_MIN, count) if self._declared is None else self._declared
        if count > declared:
            raise InputError("queries", declared, f"at least {count}, as many as are asked at once")
        predictor = replace(self._rules, queries=declared).predictor()
        units = np.full(len(self._labels), self._budget)
        predictor.add(np.arange(len(units)), self._records, self._labels, units)
        stream = self._stream
        stream.predictor, stream.number, stream.left = predictor, stream.number + 1, declared

    @override
    def _spent(self) -> Privacy:
        streams = self._stream.number
        return Privacy(
            protects="the prediction server's rows",
            against="the queriers, all of them together",
            trusts="the prediction server, with its rows",
            epsilon=self._epsilon_of(streams),
            delta=self._rules.delta,
            unit="one row added or removed",
            measure="(ε, δ)-DP",
            note=f"{streams} streams were begun on the same rows." if streams > 1 else "",
        )

    def _epsilon_of(self, streams: int) -> float:
        """Return ε of so many streams: each record may spend its budget in each of them."""
        if streams <= 1:
            return self._rules.epsilon * streams
        budget = streams * self._rules.budget
        if self._rules.accountant == "rdp":
            return ZCDP(budget).epsilon(self._rules.delta)
        return GaussianDP(sqrt(2 * budget)).epsilon(self._rules.delta)

    @property
    def _budget(self) -> int:
        """What each record may spend on a stream, in units."""
        return int(self._rules.budget * UNITS)

    def _given_rules(self) -> ServerRules:
        """Return the rules of a stream as parameters give them, if need be of the shortest."""
        kernel = Kernel(self.kernel, number("tau", self.tau), number("width", self.width))
        return ServerRules(
            features=self.n_features_in_,
            classes=len(self.classes_),
            queries=STREAM_QUERIES_MIN if self._declared is None else self._declared,
            epsilon=number("epsilon", self.epsilon),
            delta=number("delta", self.delta),
            kernel=kernel,
            sigma2=number("sigma2", self.sigma2),
            accountant=self.accountant,
        )

    def _directed(self, scaled: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return directions from the public centre, as the server takes them."""
        away = 2 * (scaled - self._middle)
        away[np.square(away).sum(axis=1) == 0] = 1.0
        return quantise(away)
