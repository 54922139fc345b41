"""What all the estimators share: public ranges, numbered classes, seeds, and what is told after."""

import operator
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from numbers import Real
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import override

from veilring.data.table import Ranges, Rows
from veilring.errors import InputError
from veilring.estimators.privacy import RANGES_TELL, SEED_TELLS, Privacy, PrivacyLeakWarning
from veilring.estimators.session import Answered, Session
from veilring.protocols.forecast import Forecast
from veilring.randomness import KEY_BYTES, Streams

RangesLike: TypeAlias = tuple[Sequence[float] | float, Sequence[float] | float]
"""The least and the greatest value of each feature, or one of each for all features."""
Seed: TypeAlias = int | RandomState | Generator | None
"""Of experiments; with none the parties' randomness is cryptographic."""

_STREAM: Final = "estimator"
_GIVEN: Final = "given as public"
_TAKEN: Final = "the rows themselves, which is not private"
_TAKEN_FREELY: Final = "the rows, which are public"
_ENDS: Final = 2
_RANGES_ALLOWED: Final = "two entries, the lows and the highs, each a number or one a column"


class PrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that plays all parties of a protocol, and tells what that costs and promises.

    Parameters count when it is fitted: what is set afterwards waits for the next `fit`.

    Attributes:
        classes_: The classes, sorted; which there are counts as public.
        ranges_origin_: Where the ranges came from.
    """

    ranges: RangesLike | None
    random_state: Seed
    _rows_are_public: ClassVar[bool] = False

    @property
    @abstractmethod
    def cost_(self) -> Forecast:
        """What it costs on a network."""

    @property
    def privacy_(self) -> Privacy:
        """What holds of this model, and what has been spent since `fit`.

        Its ε is none where ranges of private rows or a seed reveal more than any ε allows.
        """
        promised = self.deployment_privacy_
        told = self._told(promised)
        holds = promised.epsilon if not told or promised.epsilon == inf else None
        note = " ".join([promised.note, *told]).strip()
        return replace(promised, epsilon=holds, note=note)

    @property
    @abstractmethod
    def deployment_privacy_(self) -> Privacy:
        """What the same would promise and spend with public ranges, and without a seed."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Give the rows to whom they belong.

        A fit that fails changes nothing: what was fitted before goes on, with its account.

        Args:
            X: Shape (rows, features).
            y: The class of each.

        Returns:
            Itself.

        Warns:
            PrivacyLeakWarning: If ranges or a seed reveal more than any ε allows.
        """
        before = vars(self).copy()
        try:
            rows, labels = validate_data(self, X, y)
            check_classification_targets(labels)
            self.classes_, numbers = np.unique(labels, return_inverse=True)
            self._is_seeded = self.random_state is not None
            self._begin(rows, numbers, generator_of(self.random_state))
            promised = self.deployment_privacy_
            if promised.epsilon != inf and (told := self._told(promised)):
                warnings.warn(" ".join(told), PrivacyLeakWarning, stacklevel=2)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row, shape (rows,)."""

    @abstractmethod
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        """Take rows as they were given, with the numbers of their classes."""

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False))

    def _public_ranges(self, rows: NDArray[np.float64]) -> Ranges:
        """Return the ranges that were given, or those of the rows, and note which."""
        if self.ranges is None:
            self.ranges_origin_ = _TAKEN_FREELY if self._rows_are_public else _TAKEN
            return Ranges.of(rows)
        self.ranges_origin_ = _GIVEN
        given = _given_ranges(self.ranges, rows.shape[1])
        lost = np.equal(given.lows, given.highs) & (rows != rows[0]).any(axis=0)
        if lost.any():  # most likely a pair for each of two columns
            found = f"of no width in column {lost.argmax()}, where rows differ"
            raise InputError("ranges", found, _RANGES_ALLOWED)
        return given

    def _told(self, promised: Privacy) -> list[str]:
        """Return by which ways more is revealed than is promised, a sentence each."""
        told = [RANGES_TELL] if self.ranges_origin_ == _TAKEN else []
        if self._is_seeded and promised.epsilon not in {None, inf}:
            told.append(SEED_TELLS)
        return told

    def _is_noisy(self) -> bool:
        """Say whether labels are drawn, so that equal questions can have other answers."""
        return True

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  (scikit-learn has no types)
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self._is_noisy()
        # Privacy costs accuracy: what is fine with thousands of rows is noise with thirty.
        tags.classifier_tags.poor_score = self._is_noisy()
        return tags


class BatchClassifier(PrivateClassifier):
    """A classifier whose parties answer a batch of queries for each `predict`.

    The same batch again is not asked again: whoever asked has its labels, and nothing is spent.
    """

    @property
    @override
    def cost_(self) -> Forecast:
        """What the last batch that was predicted costs on a network, when it is asked first."""
        check_is_fitted(self)
        if self._session.last is None:
            raise AttributeError("cost_ is known once a batch was predicted")
        return self._session.last.cost

    @property
    @override
    def deployment_privacy_(self) -> Privacy:
        """What the same would promise and spend with public ranges, and without a seed."""
        check_is_fitted(self)
        return self._spent()

    @override
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row, shape (rows,): all rows are one batch."""
        rows = self._checked(X)
        numbers = self._session.ask(self._ranges.to_unit(rows), self._answer)
        return np.asarray(self.classes_[numbers])

    @override
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        self._ranges = self._public_ranges(rows)
        self._hold(Rows(self._ranges.to_unit(rows), numbers), rng)
        self._session = Session(rng.bytes(KEY_BYTES))

    @abstractmethod
    def _hold(self, rows: Rows, rng: Generator) -> None:
        """Give scaled rows to those who hold them."""

    @abstractmethod
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        """Answer a batch that was not asked before, scaled into [0, 1]."""

    @abstractmethod
    def _spent(self) -> Privacy:
        """Return what is promised, and spent in all, given that ranges are public."""


def generator_of(random_state: Seed) -> Generator:
    """Return the randomness of all parties: a given generator itself, or one from a seed."""
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
    """Return a parameter as Python's own number: those of a grid are NumPy's, and fit no message.

    Raises:
        InputError: If it is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(name, value, "a whole number") from None


def number(name: str, value: float) -> float:
    """Return a parameter as Python's own float.

    Raises:
        InputError: If it is no number, but a text, say.
    """
    if not isinstance(value, Real):
        raise InputError(name, value, "a number")
    return float(value)


def _given_ranges(given: RangesLike, features: int) -> Ranges:
    if np.ndim(given) == 0 or len(given) != _ENDS:
        found = given if np.ndim(given) == 0 else f"of {len(given)} entries"
        raise InputError("ranges", found, _RANGES_ALLOWED)
    lows, highs = (_of_each(bounds, features) for bounds in given)
    return Ranges(lows, highs)


def _of_each(bounds: Sequence[float] | float, features: int) -> tuple[float, ...]:
    """Return a bound for each feature."""
    given = np.asarray(bounds, dtype=np.float64)
    if given.shape not in {(), (features,)}:
        found = f"with bounds of shape {given.shape} for {features} columns"
        raise InputError("ranges", found, _RANGES_ALLOWED)
    return tuple(np.broadcast_to(given, features).tolist())
