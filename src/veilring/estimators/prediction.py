"""Ind-KNN, a prediction server whose records each have a budget, as a scikit-learn estimator."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from veilring.data.table import Rows
from veilring.errors import InputError
from veilring.estimators.base import (
    Answered,
    BatchClassifier,
    PrivacyLeakWarning,
    RangesLike,
    Seed,
    number,
    whole,
)
from veilring.privacy.accounting import Accountant
from veilring.privacy.checks import doubt_of_delta
from veilring.protocols.prediction.algorithm.filter import SIGMA2
from veilring.protocols.prediction.algorithm.kernels import PAPER_WIDTH, TAU, KernelName
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.system import IndKNN, IndKNNSetup
from veilring.protocols.system import SERVER, Facts, Promise


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """The open stream: its predictor, its number, and how many queries of it are left."""

    predictor: Predictor | None = None
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
        sigma2: float = SIGMA2,
        tau: float = TAU,
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
        features = rows.features.shape[1]
        centre: NDArray[np.float64] | float = 0.5
        if self.centre is not None:
            given = np.asarray(self.centre, np.float64)[None]
            centre = self._ranges.to_unit(given)
        system = IndKNN(
            epsilon=number("epsilon", self.epsilon),
            delta=number("delta", self.delta),
            queries="auto" if self.queries is None else whole("queries", self.queries),
            accountant=self.accountant,
            kernel=self.kernel,
            tau=number("tau", self.tau),
            width=number("width", self.width),
            sigma2=number("sigma2", self.sigma2),
        )
        facts = Facts(1, features, len(self.classes_), len(rows))
        self._setup = IndKNNSetup(system, {SERVER: rows}, facts, centre=centre)
        if doubt := doubt_of_delta(system.delta, len(rows)):
            warnings.warn(f"{doubt}.", PrivacyLeakWarning, stacklevel=4)
        self._stream = _Stream()

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        asked, stream = self._setup.directions(queries), self._stream
        if stream.predictor is None or stream.left < len(queries):
            declared = self._setup.rules(len(queries)).queries
            if len(queries) > declared:
                allowed = f"at least {len(queries)}, as many as are asked at once"
                raise InputError("queries", declared, allowed)
            stream.predictor = self._setup.open_stream(len(queries))
            stream.number, stream.left = stream.number + 1, declared
        stream.left -= len(queries)
        labels = [answer.label for answer in stream.predictor.answer_block(asked, rng)]
        return Answered(np.array(labels), self._setup.forecast(len(queries)))

    @override
    def _spent(self) -> Promise:
        streams = self._stream.number
        spent = self._setup.spent(streams)
        return Promise(
            protects="the prediction server's rows",
            against="the queriers, all of them together",
            threat_model="the prediction server, with its rows",
            epsilon=spent.epsilon,
            delta=spent.delta,
            adjacency="one row added or removed",
            unit="stream",
            measure="(ε, δ)-DP",
            note=f"{streams} streams were begun on the same rows." if streams > 1 else "",
        )
