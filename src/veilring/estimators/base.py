"""The shared base of all estimators: parameters, public ranges, batches, guarantees and seeds."""

import hashlib
import hmac
import inspect
import operator
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from numbers import Real
from textwrap import fill
from typing import Any, ClassVar, Final, Self, TypeAlias, cast

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import DescribedKey, attribute_meanings, describe_keys
from veilring.data.columns import Target
from veilring.data.schema import RowSchema
from veilring.data.table import ALPHA_MAX, ALPHA_MIN, Features, Ranges, Rows, partition
from veilring.errors import InputError, PrivacyLeakWarning
from veilring.estimators.frames import find_schema, numbers_by
from veilring.measures import NO_SCORES, Measures, NumberMeasures, measure, measure_numbers
from veilring.nodes.party import by_party
from veilring.privacy.checks import floats, require, require_that
from veilring.protocols.promise import SEED_TELLS, Facts, Forecast, Promise, Spent
from veilring.protocols.system import PARTIES, Scored, Setup, System
from veilring.randomness import KEY_BYTES, Streams, keyed

RANGES_TELL: Final = (
    "The ranges were computed from the rows and reveal something about them, so no ε holds: "
    "give public ranges."
)
"""The sentence of a note for ranges computed from private rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The answer to one batch.

    Attributes:
        labels: Class numbers, shape (queries,).
        scores: As in `Scored`.
    """

    labels: Ints
    cost: Forecast
    loss: float = 0.0
    scores: Floats | None = None


Answer: TypeAlias = Callable[[Floats, Generator], Answered]


@dataclass(slots=True, eq=False, repr=False)
class Asked:
    """The batches since `fit`, each of which was asked once.

    A client that repeats a batch already has its labels. Such repetitions are answered from here,
    so no noise is drawn twice for one question, and nothing more is spent.

    Attributes:
        key: 32 secret bytes, from which the parties' randomness is derived.
        last: The answer to the last batch, if there is one.
    """

    key: bytes
    last: Answered | None = None
    kept: dict[bytes, Answered] = field(default_factory=dict)

    def ask(self, queries: Floats, answer: Answer) -> Answered:
        """Return the answer to a batch.

        Args:
            queries: Shape (queries, features).
            answer: A function that answers a new batch; a batch that it refuses is not counted.
        """
        batch = hashlib.sha256(b"".join(query_keys(queries))).digest()
        if batch not in self.kept:
            self.kept[batch] = answer(queries, self.coins(batch))
        self.last = self.kept[batch]
        return self.last

    def coins(self, batch: bytes) -> Generator:
        """Return the parties' randomness for a new batch, given by its digest.

        It depends on all batches so far. Copies of a model that are asked the same batches give
        equal answers; once they are asked different batches, their randomness is independent. From
        one shared stream, copies would draw equal noise for different questions, which cancels out.
        """
        return keyed(hmac.digest(self.key, b"".join([*self.kept, batch]), "sha256"))


def query_keys(queries: Floats) -> list[bytes]:
    """Return a key for each query: equal queries have equal keys."""
    # adding zero turns negative zero into zero, which equals it
    return [row.tobytes() for row in queries + 0.0]


_Ends: TypeAlias = tuple[Sequence[float] | float, Sequence[float] | float]
RangesLike: TypeAlias = _Ends | Mapping[str, tuple[float, float]]
"""The smallest and the largest value of each feature, or one of each for all features; or both by
the name of a column."""
Seed: TypeAlias = int | RandomState | Generator | None
"""The seed of experiments; by default the parties' randomness is cryptographic."""

TARGETS_TELL: Final = (
    "The range of the target was computed from the rows and reveals something about them, so no ε"
    " holds: give target_range."
)
"""The sentence of a note for a range computed from private targets."""
STEPS: Final = 1000
"""The steps of a target's range whose resolution is not given."""
_PARTITIONS: Final = ("iid", "dirichlet", "by-label")
_DEALT: Final = (
    DescribedKey("parties", PARTIES, "a whole number of at least 3", "The number of parties."),
    DescribedKey(
        "partition", "iid", ", ".join(_PARTITIONS), "How to divide the rows among the parties."
    ),
    DescribedKey(
        "alpha",
        1.0,
        f"a number from {ALPHA_MIN:g} to {ALPHA_MAX:g}",
        "For `dirichlet`: the smaller the value, the fewer parties hold most of a class.",
    ),
)
"""The parameters of a classifier whose rows are divided among several parties."""
_LAST: Final = (
    DescribedKey(
        "ranges",
        None,
        "a pair of the lows and the highs, each a number or one for each feature; a pair of a low"
        " and a high for the name of each column; or none",
        "The public ranges of the features. Values outside are clipped. If none are given,"
        " the ranges of the rows are used, which reveals something about the rows.",
    ),
    DescribedKey(
        "schema",
        None,
        "the path of a TOML file, a RowSchema, or none",
        "The public schema of data frames, instead of `ranges`: their columns are found by name."
        " Without it, columns of words become categories of the rows, which reveals something about"
        " the rows.",
    ),
    DescribedKey(
        "random_state",
        None,
        "a whole number, a generator of NumPy, or none",
        "A seed for experiments, with which no ε holds. By default all randomness is"
        " cryptographic.",
    ),
)
"""The parameters of each classifier besides its system's."""

_WIDTH: Final = 100  # letters of a line of a docstring
_STREAM: Final = "estimator"
_GIVEN: Final = "given as public"
_TAKEN: Final = "computed from the rows, which is not private"
_TAKEN_FREELY: Final = "computed from the rows, which are public"
_ENDS: Final = 2
_RANGES_ALLOWED: Final = "two entries, the lows and the highs, each a number or one a column"


class SystemEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The shared base of classifiers and regressors.

    Attributes:
        ranges_origin_: The origin of the ranges.
        system_: The system, with the parameters used in `fit`.
        setup_: The parties with their rows, and the public parameters; none under LDP, where each
            row is a client.
        parts_: The numbers of the rows that each party holds; none under LDP.
    """

    system_: System
    setup_: Setup
    parts_: tuple[Ints, ...]
    _schema: RowSchema | None
    _system: ClassVar[type[System]]
    _leaves_out: ClassVar[frozenset[str]] = frozenset()
    """The parameters of the system that the constructor does not take; they keep their defaults."""
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The facts that differ from the system's, for a parameter with another meaning here."""
    _is_numeric: ClassVar[bool] = False
    """Whether labels are numbers."""
    _last: ClassVar[tuple[DescribedKey, ...]] = _LAST
    _own: ClassVar[tuple[DescribedKey, ...]] = _DEALT
    """The parameters besides those of the system, `ranges` and `random_state`."""
    _first: ClassVar[tuple[str, ...]] = ("epsilon",)
    """The parameters that may be passed by position, in order."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_system" in vars(cls):
            keys = [*cls._taken(), *cls._own, *cls._last]
            cls.__init__ = _constructor(keys, cls._first)  # type: ignore[method-assign]  # each class has its own
            cls.__doc__ = _documented(cls, keys)

    @classmethod
    def _taken(cls) -> list[DescribedKey]:
        """Return the parameters of the system that the constructor takes."""
        return [key for key in cls._keys() if key.name not in {"name", *cls._leaves_out}]

    @classmethod
    def _keys(cls) -> list[DescribedKey]:
        """Return the parameters of the system, as they are here."""
        return [
            key._replace(**cls._changed.get(key.name, {})) for key in describe_keys(cls._system)
        ]

    def _make_system(self, **instead: object) -> System:
        """Return the system with the current parameters, or with others instead of some."""
        chosen = {key.name: _plain(getattr(self, key.name, key.default)) for key in self._keys()}
        return self._system(**{**chosen, **instead})

    @property
    def cost_(self) -> Forecast:
        """The network cost of the last batch predicted, when it was first asked.

        If predicting is free, it is the cost of what `fit` played.
        """
        check_is_fitted(self)
        return self._cost()

    @property
    def privacy_(self) -> Promise:
        """The guarantee of this model, and the budget spent since `fit`.

        Its ε is none if ranges of private rows or a seed reveal more than any ε allows; its
        guarantee then names them.
        """
        promised = self.deployment_privacy_
        return promised.broken_by(self._exposing_settings(promised))

    @property
    def deployment_privacy_(self) -> Promise:
        """The guarantee and the budget spent with public ranges and without a seed."""
        check_is_fitted(self)
        return self._spent()

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Give the rows to the parties.

        A failed fit changes nothing: the previous model and its account stay valid.

        Args:
            X: The rows, shape (rows, features), or a data frame.
            y: The label of each row: its class, or a number.

        Warns:
            PrivacyLeakWarning: If ranges or a seed reveal more than any ε allows.
        """
        before = vars(self).copy()
        try:
            self._schema = find_schema(X, self.schema)
            numbers = self._numbers(X)
            rows, labels = validate_data(self, numbers, y, y_numeric=self._is_numeric)
            self._is_seeded = self.random_state is not None
            self._begin(rows, self._numbered(labels), generator_of(self.random_state))
            promised = self.deployment_privacy_
            if promised.epsilon != inf and (told := self._exposing_settings(promised)):
                warnings.warn(" ".join(told.values()), PrivacyLeakWarning, stacklevel=2)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row, shape (rows,): all rows are one batch."""
        return self._named(self._scored(self._checked(X)).labels)

    @abstractmethod
    def _numbered(self, labels: NDArray[Any]) -> Ints:
        """Return labels as parties hold them, from 0."""

    @abstractmethod
    def _named(self, labels: Ints) -> NDArray[Any]:
        """Return labels as given to `fit`."""

    @abstractmethod
    def _labelled(self, names: tuple[str, ...]) -> Features:
        """Return the public schema of rows with these columns, in their units, and of labels."""

    def _begin(self, rows: NDArray[Any], numbers: Ints, rng: Generator) -> None:
        """Store the rows as given, with the numbers of their labels."""
        self._ranges = self._public_ranges(rows)
        self._hold(Rows(self._ranges.to_unit(rows), numbers), rng)
        self._session = Asked(rng.bytes(KEY_BYTES))

    def _hold(self, rows: Rows, rng: Generator) -> None:
        """Give the rows, scaled into [0, 1], to the parties that hold them."""
        self.system_, parts = self._make_system(), [np.arange(len(rows))]
        if self._own is _DEALT:
            parties, alpha = whole("parties", self.parties), number("alpha", self.alpha)
            is_known = isinstance(self.partition, str) and self.partition in _PARTITIONS
            require(is_known, "partition", self.partition, ", ".join(_PARTITIONS))
            parts = partition(rows.labels, parties, rng, kind=self.partition, alpha=alpha)
        self.parts_ = tuple(parts)
        held = by_party(Rows(rows.features[part], rows.labels[part]) for part in parts)
        try:
            self.setup_ = self._set_up(held, self._facts(rows))
        except InputError as error:
            if len(rows) > 1:
                raise
            # scikit-learn asks for this sentence if one row is too few
            raise InputError.because(f"{error} (n_samples = 1)", field=error.field) from error

    def _facts(self, rows: Rows) -> Facts:
        """Return the public facts, with the schema of the rows as given."""
        unnamed = [f"x{number}" for number in range(rows.features.shape[1])]
        names = tuple(map(str, getattr(self, "feature_names_in_", unnamed)))
        public = self._labelled(names)
        if self._schema is not None:
            encoded = self._schema.encoded
            public = replace(encoded, classes=public.classes, target=public.target)
        return Facts.of(len(self.parts_), public, rows=len(rows))

    def _set_up(self, parts: Mapping[str, Rows], facts: Facts) -> Setup:
        return self.system_.setup(parts, facts)

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, self._numbers(X), reset=False))

    def _numbers(self, X: ArrayLike) -> ArrayLike:
        """Return a data frame by the schema, if there is one; otherwise the rows as they are."""
        return X if self._schema is None else numbers_by(self._schema, X)

    def _public_ranges(self, rows: Floats) -> Ranges:
        """Return the given ranges, or those of the rows, and record which."""
        if self._schema is not None:
            require_that(
                self.ranges is None,
                "ranges",
                "the schema of the data frame has ranges for all columns; leave `ranges` out, or"
                " give them in `schema`",
            )
            is_public = all(feature.agreed for feature in self._schema.features)
            self.ranges_origin_ = _GIVEN if is_public else _TAKEN
            return self._schema.encoded.ranges
        if self.ranges is None:
            self.ranges_origin_ = _TAKEN if self._system.hides_rows else _TAKEN_FREELY
            return Ranges.of(rows)
        self.ranges_origin_ = _GIVEN
        given = _given_ranges(self._by_position(self.ranges), rows.shape[1])
        lost = np.equal(given.lows, given.highs) & (rows != rows[0]).any(axis=0)
        if lost.any():  # most likely a pair for each of two columns
            raise InputError.because(
                f"the ranges have no width in column {lost.argmax()}, where rows differ; "
                f"they are {_RANGES_ALLOWED}",
                field="ranges",
            )
        return given

    def _by_position(self, given: RangesLike) -> _Ends:
        """Return ranges in the order of the columns, if they are given by name."""
        if not isinstance(given, Mapping):
            return given
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        if given.keys() != set(names):
            raise InputError.because(
                f"the ranges are of the columns {', '.join(given)}, and the rows have"
                f" {', '.join(names) or 'no names of columns'}; give a range for each column",
                field="ranges",
            )
        lows, highs = zip(*(given[name] for name in names), strict=True)
        return lows, highs

    def _exposing_settings(self, promised: Promise) -> dict[str, str]:
        """Return the settings that reveal more than the guarantee allows, with a sentence each."""
        told = {"ranges of private rows": RANGES_TELL} if self.ranges_origin_ == _TAKEN else {}
        if self._is_seeded and promised.epsilon not in {None, inf}:
            told["seeded noise"] = f"{SEED_TELLS} Leave out random_state."
        return told

    def _scored(self, rows: NDArray[Any]) -> Scored:
        """Return the class numbers of a batch, with the scores that were revealed."""
        answered = self._session.ask(self._ranges.to_unit(rows), self._answer)
        return Scored(answered.labels, answered.scores)

    def _answer(self, queries: Floats, rng: Generator) -> Answered:
        """Answer a new batch, scaled into [0, 1]."""
        if self.system_.promise(parties=len(self.parts_)).epsilon is not None:
            self._require_one_batch(queries)
        cost = self.system_.forecast_for(self.setup_.facts, len(queries))
        parts = [self.setup_.score(part, rng) for part in self.setup_.batches(queries)]
        labels, scores = Scored.together(parts)
        return Answered(labels, cost, scores=scores)

    def _require_one_batch(self, queries: Floats) -> None:
        """Refuse more queries than share one budget."""
        count, most = len(queries), self.setup_.batch_max
        require_that(
            count <= most, "queries", f"there are {count} queries; 1 to {most} are possible at once"
        )

    def _cost(self) -> Forecast:
        """Return the cost on a network."""
        if self._session.last is None:
            raise AttributeError("cost_ exists only after a batch was predicted")
        return self._session.last.cost

    def _spent(self) -> Promise:
        """Return the guarantee and the total budget spent, assuming public ranges."""
        return self._charged(self.setup_.spent(len(self._session.kept)))

    def _charged(self, spent: Spent) -> Promise:
        """Return the guarantee with the budget spent instead of that of one batch."""
        promise = self.system_.promise_about(replace(self.setup_.facts, rows=None))
        if spent.epsilon is None:
            return promise
        unit = promise.unit if spent.times == 1 else spent.what.removeprefix("for ")
        return replace(promise, epsilon=spent.epsilon, delta=spent.delta, unit=unit)

    def _is_noisy(self) -> bool:
        """Return whether labels are drawn, so that repeated questions can have other answers."""
        return bool(getattr(self, "epsilon", None) != inf)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self._is_noisy()
        return tags


def _reveals_scores(model: "SystemClassifier") -> bool:
    """Return whether labels come with scores; otherwise raise the reason."""
    system = model._make_system()  # noqa: SLF001  (a class of this module)
    if not system.reveals_scores:
        raise AttributeError(f"{system.name}: {NO_SCORES}")
    return True


class SystemClassifier(ClassifierMixin, SystemEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that plays all parties of a system and reports cost and guarantee.

    The parties answer one batch of queries for each `predict`. A repeated batch is answered from
    memory, and nothing is spent. The constructor takes the parameters of the system, with the
    system's own defaults, followed by some that a deployment does not have. Changed parameters take
    effect at the next `fit`. A class for another system only needs to name the system::

        class MyClassifier(SystemClassifier):
            _system = MySystem

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
    """

    @available_if(_reveals_scores)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return each class's share of the votes on each row, shape (rows, classes).

        All rows are one batch: after `predict` of the same rows, nothing more is spent. Systems
        that reveal only labels do not have this method.
        """
        return cast("Floats", self._scored(self._checked(X)).scores)

    def measures(self, X: ArrayLike, y: ArrayLike) -> Measures:
        """Return all measures of the labels of rows, with their intervals; all rows are one batch.

        Args:
            X: The rows, shape (rows, features).
            y: The true class of each row.
        """
        said, truth = self._scored(self._checked(X)), np.asarray(y)
        known = np.isin(truth, self.classes_)
        require_that(
            bool(known.all()),
            "y",
            f"y has the class {truth[~known][:1]}, which `fit` has not seen; the classes are"
            f" {', '.join(map(str, self.classes_))}",
        )
        numbers, names = np.searchsorted(self.classes_, truth), map(str, self.classes_)
        return measure(numbers, said.labels, tuple(names), said.scores)

    @override
    def _numbered(self, labels: NDArray[Any]) -> Ints:
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        return np.asarray(numbers)

    @override
    def _named(self, labels: Ints) -> NDArray[Any]:
        return np.asarray(self.classes_[labels])

    @override
    def _labelled(self, names: tuple[str, ...]) -> Features:
        return Features(names, self._ranges, tuple(map(str, self.classes_.tolist())))

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        # Privacy costs accuracy: a model that works for thousands of rows may be noise for thirty.
        tags.classifier_tags.poor_score = self._is_noisy()
        return tags


class SystemRegressor(RegressorMixin, SystemEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor that plays all parties of a system and reports cost and guarantee.

    Attributes:
        target_: The range of the target, and the resolution of targets and predictions.
    """

    target_: Target
    _is_numeric = True
    _last = (
        DescribedKey(
            "target_range",
            None,
            "a pair of the lowest and the highest target, or none",
            "The public range of the target. Values outside are clipped. If none is given, it is"
            " that of the schema; without one, the range of the targets is used, in whole steps,"
            " which reveals something about them.",
        ),
        DescribedKey(
            "resolution",
            None,
            "a number above 0 that divides the range into whole steps, or none",
            "The step to which targets and predictions are rounded. By default the thousandth part"
            " of the range.",
        ),
        *_LAST,
    )

    def measures(self, X: ArrayLike, y: ArrayLike) -> NumberMeasures:
        """Return RMSE, MAE and R² of predictions, with their intervals; all rows are one batch.

        Args:
            X: The rows, shape (rows, features).
            y: The true number of each row.
        """
        return measure_numbers(floats("y", np.asarray(y)), self.predict(X))

    @override
    def _numbered(self, labels: NDArray[Any]) -> Ints:
        labels = floats("y", labels)
        declared = None if self._schema is None else self._schema.target
        if declared is not None and self.target_range is self.resolution is None:
            self.target_, self._is_range_taken = declared, not declared.agreed
            return declared.labels_of(labels)
        self._is_range_taken = self.target_range is None
        given = (labels.min(), labels.max()) if self.target_range is None else self.target_range
        is_pair = np.ndim(given) == 1 and len(given) == _ENDS
        low, high = (number("target_range", end) for end in given) if is_pair else (1.0, 0.0)
        if self._is_range_taken and low == high:
            high = low + max(1.0, abs(low))  # of equal targets, which have no range
        require(low < high, "target_range", given, "a pair of the lowest and the highest target")
        step = (high - low) / STEPS if self.resolution is None else self.resolution
        step = number("resolution", step)
        require(step > 0, "resolution", step, "a number above 0")
        if self._is_range_taken and self.resolution is not None:
            low, high = floor(low / step) * step, ceil(high / step) * step
        self.target_ = Target(low=low, high=high, resolution=step)
        return self.target_.labels_of(labels)

    @override
    def _named(self, labels: Ints) -> NDArray[Any]:
        return self.target_.values_of(labels)

    @override
    def _labelled(self, names: tuple[str, ...]) -> Features:
        return Features(names, self._ranges, (), target=self.target_)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._is_noisy()  # as for a classifier
        return tags

    @override
    def _exposing_settings(self, promised: Promise) -> dict[str, str]:
        told = super()._exposing_settings(promised)
        if self._is_range_taken:
            told["range of private targets"] = TARGETS_TELL
        return told


def _constructor(keys: Sequence[DescribedKey], first: Sequence[str]) -> Callable[..., None]:
    """Return a constructor of these keys, the first by position, as scikit-learn reads it."""
    parameter = inspect.Parameter
    defaults = {"self": parameter.empty} | {key.name: key.default for key in keys}
    by_place = ["self", *(name for name in first if name in defaults)]
    by_name = [name for name in defaults if name not in by_place]
    signature = inspect.Signature(
        [
            parameter(name, parameter.POSITIONAL_OR_KEYWORD, default=defaults[name])
            for name in by_place
        ]
        + [parameter(name, parameter.KEYWORD_ONLY, default=defaults[name]) for name in by_name]
    )

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807  (a constructor is made)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        vars(bound.arguments.pop("self")).update(bound.arguments)

    __init__.__signature__ = signature  # type: ignore[attr-defined]  # which `inspect` reads
    return __init__


def _documented(kind: type, keys: Sequence[DescribedKey]) -> str:
    """Return the docstring of a class with all parameters and all attributes."""
    about, _, _ = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")
    parameters = {key.name: f"{key.meaning} Allowed: {key.allowed}." for key in keys}
    for title, entries in {"Args": parameters, "Attributes": attribute_meanings(kind)}.items():
        lines = (
            fill(f"    {name}: {meaning}", _WIDTH, subsequent_indent=" " * 8)
            for name, meaning in entries.items()
        )
        about += f"\n\n{title}:\n" + "\n".join(lines)
    return f"{about}\n"


def _plain(value: object) -> object:
    """Return a parameter as a Python type: those of a grid have NumPy's types."""
    return value.item() if isinstance(value, np.generic) else value


def generator_of(random_state: Seed) -> Generator:
    """Return the randomness of all parties: the given generator, or one from a seed."""
    match random_state:
        case Generator():
            return random_state
        case RandomState():
            return Streams(int(random_state.randint(2**31))).generator(_STREAM)
        case None:
            return Streams().generator(_STREAM)
        case _:
            return Streams(whole("random_state", random_state)).generator(_STREAM)


def whole(name: str, value: int) -> int:
    """Return a parameter as a Python int: NumPy's, as in a grid, cannot be sent in a message."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(name, value, "a whole number") from None


def number(name: str, value: float) -> float:
    """Return a parameter as a Python float."""
    if not isinstance(value, Real):
        raise InputError(name, value, "a number")
    return float(value)


def _given_ranges(given: _Ends, features: int) -> Ranges:
    if np.ndim(given) == 0 or len(given) != _ENDS:
        raise InputError.because(f"the ranges must be {_RANGES_ALLOWED}", field="ranges")
    lows, highs = (_of_each(bounds, features) for bounds in given)
    return Ranges(lows, highs)


def _of_each(bounds: Sequence[float] | float, features: int) -> tuple[float, ...]:
    """Return a bound for each feature."""
    given = np.asarray(bounds, dtype=np.float64)
    if given.shape not in {(), (features,)}:
        raise InputError.because(
            f"the ranges have bounds of the shape {given.shape} for {features} columns; "
            f"they are {_RANGES_ALLOWED}",
            field="ranges",
        )
    return tuple(np.broadcast_to(given, features).tolist())
