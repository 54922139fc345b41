"""Noisy votes by a data owner, r-N and k-N, as scikit-learn estimators."""

from typing import Any, ClassVar, Final, Literal, cast

from numpy.random import Generator
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import SystemClassifier, whole
from veilring.privacy.checks import require
from veilring.protocols.radius.rules import OwnerRules
from veilring.protocols.radius.system import DataOwner, OwnerSetup
from veilring.protocols.system import System

Mode = Literal["default", "paper"]
"""Ours (each query pays for its largest clique, permute-and-flip), or the paper's solution (for the
largest one of its component, Laplace noise)."""

_MODES: Final = ("default", "paper")
_NOT_TAKEN: Final = frozenset(
    {"name", "batch", "allocation", "mechanism", "conversion", "public_rows"}
)
_PAPER: Final = {"allocation": "component", "mechanism": "laplace"}


class _OwnerClassifier(SystemClassifier):
    """What both have in common: an owner that holds all rows."""

    mode: Mode

    @classmethod
    @override
    def _others(cls) -> dict[str, object]:
        return {"mode": "default", "ranges": None, "random_state": None}

    @property
    def rules_(self) -> OwnerRules:
        """What the owner answers, and how."""
        return cast("OwnerSetup", self._setup).rules

    @property
    def radius_(self) -> float:
        """The radius within which rows vote, among features in [0, 1]."""
        return cast("OwnerSetup", self._setup).radius

    @override
    def _make_system(self) -> System:
        require(self.mode in _MODES, "mode", self.mode, " or ".join(_MODES))
        system = super()._make_system()
        return system if self.mode == "default" else system.model_copy(update=self._paper())

    def _paper(self) -> dict[str, Any]:
        """Return the parameters of the paper's solution."""
        return dict(_PAPER)

    @override
    def _dealt(self, rows: Rows, rng: Generator) -> dict[str, Rows]:
        return {"party-0": rows}


class OwnerRadiusClassifier(_OwnerClassifier):
    """r-N: the rows within a radius of a query vote, and a data owner names a winner with noise.

    All queries of a `predict` are one batch under `epsilon`, which is shared out by how the balls
    around them overlap; another batch spends another `epsilon`. A batch has at most 1000 queries.

    Its parameters are those of `DataOwner` for a radius, and `mode` (`default`, or `paper` for the
    paper's own solution), `ranges` and `random_state`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        rules_: What the owner answers, and how.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = DataOwner
    _leaves_out: ClassVar[frozenset[str]] = _NOT_TAKEN | {"k", "count_share", "conversion_share"}
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "radius")


class OwnerKNNClassifier(_OwnerClassifier):
    """k-N: k is turned into a radius for each query first, and then the rows within it vote.

    A part of `epsilon` pays for the radii, and, unless `mode` is `paper`, another for the number of
    rows. All queries of a `predict` are one batch, as in `OwnerRadiusClassifier`.

    Its parameters are those of `DataOwner` for k (10 unless given), and `mode` (`default`, or
    `paper` for the paper's own solution, for which the number of rows is public), `ranges` and
    `random_state`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        rules_: What the owner answers, and how.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = DataOwner
    _leaves_out: ClassVar[frozenset[str]] = _NOT_TAKEN | {"radius"}
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "k")

    @classmethod
    @override
    def _parameters(cls) -> dict[str, object]:
        return {**super()._parameters(), "k": 10}

    @override
    def _make_system(self) -> System:
        require(whole("k", self.k) >= 1, "k", self.k, "a whole number of at least 1")
        return super()._make_system()

    @override
    def _paper(self) -> dict[str, Any]:
        return {**_PAPER, "conversion": "paper", "public_rows": True}
