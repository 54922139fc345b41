"""Models of growth: a sum of known terms with factors that are not negative, by least squares.

Curves go over decades, so what is made small is the sum of squares of *relative* residuals. Factors
below zero would promise that something larger is cheaper: there are none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError


class Term(NamedTuple):
    """A term of a model.

    Attributes:
        name: As the model writes it behind its factor; nothing for a constant.
        of: Its value at x.
    """

    name: str
    of: Callable[[float], float]


Basis = tuple[Term, ...]
"""The terms that a model is a sum of."""

LINE: Final[Basis] = (Term("", lambda _x: 1.0), Term("x", lambda x: x))
"""`a + b * x`."""


PAIRS: Final[Basis] = (*LINE, Term("x^2", lambda x: x * x))
"""`a + b * x + c * x^2`: where each is looked at beside each other."""


def closed_form(name: str, form: Callable[[float], float]) -> Basis:
    """Return the model `c * form`, in which c = 1 says that nothing was left out."""
    return (Term(name, form),)


@dataclass(frozen=True, slots=True)
class Fit:
    """A model with its factors, and how far it is off.

    Attributes:
        basis: Its terms.
        factors: One for each, at least 0.
        r_squared: The share of the variance that the model explains; not of relative residuals.
        worst: The largest relative error at any measured point.
        left_out: The relative error at the largest point of the same model fitted without it,
            signed: above 0 if it says too much. None where too few points are left for a fit.
    """

    basis: Basis
    factors: tuple[float, ...]
    r_squared: float
    worst: float
    left_out: float | None

    def __call__(self, x: float) -> float:
        """Return what the model says at x."""
        return sum(b * term.of(x) for b, term in zip(self.factors, self.basis, strict=True))

    @property
    def formula(self) -> str:
        """The model in one line."""
        terms = (
            f"{b:.4g} {term.name}".strip()
            for b, term in zip(self.factors, self.basis, strict=True)
            if b or len(self.basis) == 1
        )
        return " + ".join(terms) or "0"


def fit(basis: Basis, x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a model to measured points.

    Args:
        basis: Its terms.
        x: Where was measured, ascending; at least as many points as terms.
        y: What was measured, each above 0.

    Raises:
        InputError: If there are too few points or one is not above 0.
    """
    if len(x) != len(y) or len(x) < len(basis):
        raise InputError("points", len(x), f"at least {len(basis)}, each with what was measured")
    if not all(value > 0 for value in y):
        raise InputError("points", "with what is not above 0", "positive measurements")
    factors = _factors(basis, x, y)
    said, seen = _matrix(basis, x) @ factors, np.array(y)
    spread = float(((seen - seen.mean()) ** 2).sum())
    residual = float(((seen - said) ** 2).sum())
    return Fit(
        basis,
        tuple(factors.tolist()),
        1 - residual / spread if spread else 1.0,
        float(np.abs(said / seen - 1).max()),
        _left_out(basis, x, y),
    )


def _factors(basis: Basis, x: Sequence[float], y: Sequence[float]) -> NDArray[np.float64]:
    from scipy.optimize import nnls  # noqa: PLC0415  (0.2 s, and `--help` needs none)

    terms = _matrix(basis, x) / np.array(y)[:, None]
    # Terms differ by many powers of ten: each column is brought to one size first.
    size = np.linalg.norm(terms, axis=0)
    found, _ = nnls(terms / size, np.ones(len(x)))
    return np.asarray(found / size)


def _left_out(basis: Basis, x: Sequence[float], y: Sequence[float]) -> float | None:
    if len(x) <= len(basis):
        return None
    said = _matrix(basis, x[-1:]) @ _factors(basis, x[:-1], y[:-1])
    return float(said[0] / y[-1] - 1)


def _matrix(basis: Basis, x: Sequence[float]) -> NDArray[np.float64]:
    return np.array([[term.of(at) for term in basis] for at in x], dtype=np.float64)
