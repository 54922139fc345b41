"""PP-kNN among peers in a ring, as a scikit-learn estimator."""

from typing import ClassVar, cast

from numpy.random import Generator
from typing_extensions import override

from veilring.data.table import Rows
from veilring.estimators.base import SystemClassifier, whole
from veilring.privacy.checks import require
from veilring.protocols.ring.roles import KNNParameters
from veilring.protocols.ring.system import PrivateKNN, RingSetup
from veilring.protocols.system import System


class PrivateKNNClassifier(SystemClassifier):
    """kNN over the rows of several parties, as if they were in one place.

    `fit` deals the rows to parties. `predict` runs the steps that the parties of a ring run:
    PP-TopK for the k smallest distances of all, then a secure sum of votes. A batch that does not
    fit a message is asked in several.

    There is no ε here. The transcript of PP-TopK is not differentially private, however its noise
    is chosen, and the distances and votes that all parties learn are exact.

    Its parameters are those of `PrivateKNN`, and `parties`, `partition`, `alpha`, `ranges` and
    `random_state`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        parameters_: The protocol's public parameters.
        parts_: The rows that each party was dealt.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = PrivateKNN
    _first: ClassVar[tuple[str, ...]] = ("parties", "k")

    @property
    def parameters_(self) -> KNNParameters:
        """The protocol's public parameters."""
        return cast("RingSetup", self._setup).parameters

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        k = whole("k", self.k)
        allowed = f"at most the rows of all parties (n_samples = {len(rows)})"
        require(k <= len(rows), "k", k, allowed)
        super()._hold(rows, rng)

    @override
    def _is_noisy(self) -> bool:
        # With `auto` a label is the pooled one but for `error`, far below what a test would see.
        return bool(self.rounds != "auto")
