"""The classifier of each system, with its additions to the system's parameters.

A class names its system. `SystemClassifier` derives from it the constructor, the docstring, the
steps, the cost and the guarantee.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from veilring.config import DescribedKey
from veilring.data.table import Features, Rows
from veilring.errors import InputError, PrivacyLeakWarning
from veilring.estimators.base import (
    Answered,
    SystemClassifier,
    query_keys,
    whole,
)
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import doubt_of_delta, require
from veilring.protocols.forecast import Forecast, total_cost
from veilring.protocols.noisyvotes.algorithm.parameters import NoisyVotesParameters
from veilring.protocols.noisyvotes.messages import votes_cost
from veilring.protocols.noisyvotes.system import NoisyVotes, VotesSetup
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.system import IndKNN, IndKNNSetup
from veilring.protocols.promise import Promise, Spent
from veilring.protocols.radius.rules import PAPER_SHARE, OwnerRules
from veilring.protocols.radius.system import DataOwner, OwnerSetup
from veilring.protocols.ranksearch.cost import found_cost
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.system import Release, ReleaseSetup
from veilring.protocols.ring.roles import KNNParameters
from veilring.protocols.ring.system import PrivateKNN, RingSetup
from veilring.protocols.system import SERVER, System
from veilring.protocols.treewalk.algorithm.tree import Places
from veilring.protocols.treewalk.system import TreeWalk, TreeWalkSetup

Mode = Literal["default", "paper"]
"""veilring's method (each query pays for its largest clique, permute-and-flip), or the paper's
(each query pays for the largest clique of its component, Laplace noise)."""

_MODES: Final = ("default", "paper")
_AT_LEAST_ONE: Final = 'a whole number of at least 1, or "auto"'
_BY_MODE: Final = frozenset({"allocation", "mechanism", "conversion", "public_rows"})


class PrivateKNNClassifier(SystemClassifier):
    """kNN over the rows of several parties, as if they were in one place.

    `fit` divides the rows among parties. `predict` runs the steps of the parties of a ring: PP-TopK
    for the k smallest distances overall, then a secure sum of votes. A batch too large for one
    message is split.

    There is no ε. The transcript of PP-TopK is not differentially private for any choice of noise,
    and all parties learn exact distances and votes.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        parameters_: The protocol's public parameters.
        parts_: The numbers of the rows that each party holds.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = PrivateKNN
    _first: ClassVar[tuple[str, ...]] = ("parties", "k")
    _setup: RingSetup

    @property
    def parameters_(self) -> KNNParameters:
        """The protocol's public parameters."""
        return self._setup.parameters

    @override
    def _dealt(self, rows: Rows, rng: Generator) -> dict[str, Rows]:
        k = cast("PrivateKNN", self.system_).k
        allowed = f"at most the rows of all parties (n_samples = {len(rows)})"
        require(k <= len(rows), "k", k, allowed)
        return super()._dealt(rows, rng)

    @override
    def _is_noisy(self) -> bool:
        # With `auto` the labels equal the pooled ones except with probability `error`, far below
        # what a test would notice.
        return bool(self.rounds != "auto")


class RankSearchClassifier(SystemClassifier):
    """kNN over the rows of several parties, as if they were in one place; it reveals only totals.

    `fit` divides the rows among parties. `predict` runs the steps of the parties: counts of rows
    within public radii until the radius of the k nearest is known, then a sum of votes. A batch too
    large for one message is split. The number of steps of a search depends on the rows, and so does
    `cost_`.

    There is no ε: all parties learn exact totals.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        parameters_: The protocol's public parameters.
        parts_: The numbers of the rows that each party holds.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = RankSearch
    _first: ClassVar[tuple[str, ...]] = ("parties", "k")
    # one process with all rows always contains all parties
    _leaves_out: ClassVar[frozenset[str]] = frozenset({"again"})
    _setup: SearchSetup

    @property
    def parameters_(self) -> SearchParameters:
        """The protocol's public parameters."""
        return self._setup.parameters

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        setup, parts = self._setup, list(self._setup.parts.values())
        ranked = [setup.search(batch, parts) for batch in setup.batches(queries)]
        costs = [
            found_cost(len(parts), each.found, setup.parameters, each.tied_rows) for each in ranked
        ]
        return Answered(np.concatenate([each.votes.labels for each in ranked]), total_cost(*costs))

    @override
    def _is_noisy(self) -> bool:
        return False


class NoisyVotesClassifier(SystemClassifier):
    """r-N or k-N among parties: each adds its noise share to its counts.

    `fit` divides the rows among parties. `predict` runs the steps of the parties: those of the data
    owner of `OwnerRadiusClassifier`, with a secure sum in the owner's place. All queries are one
    batch under `epsilon`; another batch spends another `epsilon`. A batch has at most `batch`
    queries, and must fit into a message.

    Each party knows its own noise share, and a coalition knows those of its members. With
    `tolerated` at 0, the noise shares of the others are not enough for `epsilon`, and `privacy_`
    shows the larger loss.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        parameters_: The protocol's public parameters.
        parts_: The numbers of the rows that each party holds.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = NoisyVotes
    _first: ClassVar[tuple[str, ...]] = ("parties", "epsilon")
    _setup: VotesSetup

    @property
    def parameters_(self) -> NoisyVotesParameters:
        """The protocol's public parameters."""
        return self._setup.parameters

    @override
    def _set_up(self, parts: dict[str, Rows]) -> VotesSetup:
        self._losses: list[float] = []
        return cast("VotesSetup", super()._set_up(parts))

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        self._require_one_batch(queries)
        said = self._setup.answer(queries, rng)
        self._losses.append(self._setup.loss_of(said))
        parties = len(self._setup.parties)
        return Answered(
            said.labels, votes_cost(parties, len(queries), self.parameters_, rows=said.rows)
        )

    @override
    def _spent(self) -> Promise:
        """Return the exact privacy loss of the batches, below `epsilon` if their balls differ."""
        lost = PureDP(0.0).compose(*map(PureDP, self._losses)).epsilon()
        return self._charged(Spent(lost, 0.0, len(self._losses), "batch"))


def _has_probabilities(model: "ReleasedClassifier") -> bool:
    """Return whether scores become probabilities; unknown before `fit`."""
    return not hasattr(model, "model_") or model.model_.classifier.has_probabilities


class ReleasedClassifier(SystemClassifier):
    """A model that parties, or an owner, release once; predictions cost nothing more.

    `fit` divides the rows among parties, which release one noisy sum of them; the model is made
    from that. `fit` spends `epsilon`, and each further `fit` on the same rows spends it again.
    Class means have no `predict_proba`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        model_: The released model with its guarantee; `model_.save` writes it to a file.
        parts_: The numbers of the rows that each party holds.
        ranges_origin_: The origin of the ranges.
    """

    model_: ReleasedModel
    _system: ClassVar[type[System]] = Release
    _first: ClassVar[tuple[str, ...]] = ("parties", "epsilon")
    _setup: ReleaseSetup

    @property
    @override
    def cost_(self) -> Forecast:
        """The cost of the release on a network; predicting is free."""
        check_is_fitted(self)
        return cast("Release", self.system_).cost(self._setup.parameters, len(self.parts_))

    @override
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row, shape (rows,)."""
        rows = self._checked(X)
        return np.asarray(self.classes_[self.model_.classifier.predict(self.model_.to_unit(rows))])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the estimated probability of each class, shape (rows, classes)."""
        rows = self._checked(X)
        return self.model_.predict_proba(rows)

    @override
    def _begin(self, rows: NDArray[Any], numbers: NDArray[np.int64], rng: Generator) -> None:
        self._ranges = self._public_ranges(rows)
        # a feature without width is 0, as in the model's own schema
        self._hold(Rows(self._ranges.to_unit(rows, constant=0.0), numbers), rng)
        released, parameters = self._setup.release(rng), self._setup.parameters
        self.model_ = ReleasedModel.of(released, parameters, self.privacy_)

    @override
    def _set_up(self, parts: dict[str, Rows]) -> ReleaseSetup:
        unnamed = [f"x{number}" for number in range(self._facts.features)]
        names = tuple(map(str, getattr(self, "feature_names_in_", unnamed)))
        classes = tuple(map(str, self.classes_.tolist()))
        self._facts = replace(self._facts, schema=Features(names, self._ranges, classes))
        return cast("ReleaseSetup", super()._set_up(parts))

    @override
    def _spent(self) -> Promise:
        return cast("Release", self.system_).promise_of(self._setup.parameters.plan)


class _OwnerClassifier(SystemClassifier):
    """Shared parts of classifiers with an owner that holds all rows."""

    mode: Mode
    _own: ClassVar[tuple[DescribedKey, ...]] = (
        DescribedKey(
            "mode",
            "default",
            " or ".join(_MODES),
            "The labelling method: veilring's own, or the `paper`'s (a query pays for the"
            " largest clique of its component, Laplace noise; with k, the number of rows is"
            " public, and half of `epsilon` turns k into radii).",
        ),
    )
    _paper: ClassVar[Mapping[str, object]] = {"allocation": "component", "mechanism": "laplace"}
    """The parameters of the paper's method."""
    _setup: OwnerSetup

    @property
    def rules_(self) -> OwnerRules:
        """The owner's rules."""
        return self._setup.rules

    @override
    def _make_system(self) -> System:
        require(self.mode in _MODES, "mode", self.mode, " or ".join(_MODES))
        system = super()._make_system()
        return system if self.mode == "default" else system.model_copy(update=self._paper)

    @override
    def _dealt(self, rows: Rows, rng: Generator) -> dict[str, Rows]:
        return {"party-0": rows}


class OwnerRadiusClassifier(_OwnerClassifier):
    """r-N: the rows within a radius of a query vote, and a data owner draws the winner with noise.

    All queries of a `predict` are one batch under `epsilon`, which is divided by the overlap of the
    balls around them; another batch spends another `epsilon`. A batch has at most `batch` queries.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        rules_: The owner's rules.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = DataOwner
    _leaves_out: ClassVar[frozenset[str]] = _BY_MODE | {"k", "count_share", "conversion_share"}
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "radius")


class OwnerKNNClassifier(_OwnerClassifier):
    """k-N: k is converted to a radius for each query, and the rows within it vote.

    A part of `epsilon` pays for the radii, and, unless `mode` is `paper`, another part for the
    number of rows. All queries of a `predict` are one batch, as in `OwnerRadiusClassifier`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        rules_: The owner's rules.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = DataOwner
    _leaves_out: ClassVar[frozenset[str]] = _BY_MODE | {"radius"}
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "k": {
                "default": "auto",
                "allowed": _AT_LEAST_ONE,
                "meaning": "The approximate number of nearest rows that vote. `auto` follows from"
                " the numbers of features and rows; the number of rows is then public.",
            }
        }
    )
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "k")
    _paper: ClassVar[Mapping[str, object]] = {
        **_OwnerClassifier._paper,  # noqa: SLF001  (inherited by this class)
        "conversion": "paper",
        "conversion_share": PAPER_SHARE,
        "public_rows": True,
    }

    @override
    def _make_system(self) -> System:
        given = self.k == "auto" or whole("k", self.k) >= 1
        require(given, "k", self.k, _AT_LEAST_ONE)
        return super()._make_system()


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """The open stream: its predictor, its number, and its remaining queries."""

    predictor: Predictor | None = None
    number: int = 0
    left: int = 0


class IndKNNClassifier(SystemClassifier):
    """Kernel votes of private records, each charged for its votes until its budget is exhausted.

    The queries of a `predict` are a stream, or part of one if `queries` declares a longer stream.
    Further queries continue with the remaining budgets of the records, as long as the stream has
    room for the whole batch. Otherwise a new stream begins, for which all records have a fresh
    budget; the combined loss exceeds `epsilon`, and `privacy_` shows it.

    Rows and queries become directions from a public centre, by default the middle of the ranges,
    never the rows' own mean. A row at the centre has no direction; the diagonal is used instead. If
    `delta` is above 0.001, or above 1 divided by the number of rows, `fit` shows a
    `PrivacyLeakWarning`.

    Attributes:
        classes_: The sorted class labels. The set of classes is treated as public.
        ranges_origin_: The origin of the ranges.
    """

    _system: ClassVar[type[System]] = IndKNN
    _own: ClassVar[tuple[DescribedKey, ...]] = (
        DescribedKey(
            "centre",
            None,
            "a number for each feature, in the unit of the rows; or none",
            "The public point from which directions are measured.",
        ),
    )
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "delta")
    _setup: IndKNNSetup

    @override
    def _dealt(self, rows: Rows, rng: Generator) -> dict[str, Rows]:
        return {SERVER: rows}

    @override
    def _set_up(self, parts: dict[str, Rows]) -> IndKNNSetup:
        centre: NDArray[np.float64] | float = 0.5
        if self.centre is not None:
            centre = self._ranges.to_unit(np.asarray(self.centre, np.float64)[None])
        return IndKNNSetup(cast("IndKNN", self.system_), parts, self._facts, centre=centre)

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        super()._hold(rows, rng)
        if doubt := doubt_of_delta(cast("IndKNN", self.system_).delta, len(rows)):
            warnings.warn(f"{doubt}.", PrivacyLeakWarning, stacklevel=4)
        self._stream = _Stream()

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        asked, stream = self._setup.directions(queries), self._stream
        if stream.predictor is None or stream.left < len(queries):
            declared = self._setup.rules(len(queries)).queries
            if len(queries) > declared:
                raise InputError.because(
                    f"there are {len(queries)} queries at once, but `queries` is {declared}",
                    field="queries",
                )
            stream.predictor = self._setup.open_stream(asked)
            stream.number, stream.left = stream.number + 1, declared
        stream.left -= len(queries)
        labels = [said.label for said in stream.predictor.answer_block(asked, rng)]
        return Answered(np.array(labels), self._setup.forecast(len(queries)))

    @override
    def _spent(self) -> Promise:
        return self._charged(self._setup.spent(self._stream.number))


class TreeWalkClassifier(SystemClassifier):
    """The labels of public rows near a query that a client hides from their server.

    The rows and their labels are public. For each query of a `predict`, a client asks with its own
    noise, and the nearest of the rows found vote. A repeated query, in any batch, gets its earlier
    answer and spends nothing. At most 16 features are supported: with more, every half of a tree is
    nearly all of it.

    Attributes:
        classes_: The sorted class labels.
        places_: The server's rows, in their tree.
        ranges_origin_: The origin of the ranges; those of the rows are public, too.
    """

    _system: ClassVar[type[System]] = TreeWalk
    _own: ClassVar[tuple[DescribedKey, ...]] = ()
    _first: ClassVar[tuple[str, ...]] = ("epsilon", "utility", "variant")
    _rows_are_public: ClassVar[bool] = True
    _setup: TreeWalkSetup

    @property
    def places_(self) -> Places:
        """The server's rows, in their tree."""
        return self._setup.places

    @override
    def _dealt(self, rows: Rows, rng: Generator) -> dict[str, Rows]:
        if len(rows) == 1:
            raise InputError.because(
                "n_samples = 1 is too few: at least 2 rows are needed, or there is nothing to hide",
                field="rows",
            )
        self._known: dict[bytes, int] = {}
        return {"client": rows}

    @override
    def _answer(self, queries: NDArray[np.float64], rng: Generator) -> Answered:
        names, is_first = query_keys(queries), not self._known
        fresh = {name: row for row, name in enumerate(names) if name not in self._known}
        asked, setup = queries[list(fresh.values())], self._setup
        if len(asked):
            self._known.update(zip(fresh, setup.label(asked, rng).tolist(), strict=True))
        costs = [
            setup.lookup.cost(len(part), is_known=not is_first or turn > 0)
            for turn, part in enumerate(setup.batches(asked))
        ]
        return Answered(np.array([self._known[name] for name in names]), total_cost(*costs))

    @override
    def _spent(self) -> Promise:
        return self._setup.promise


_OF_A_SYSTEM: Final[Mapping[type[System], type[SystemClassifier]]] = MappingProxyType(
    {
        PrivateKNN: PrivateKNNClassifier,
        RankSearch: RankSearchClassifier,
        Release: ReleasedClassifier,
        NoisyVotes: NoisyVotesClassifier,
        IndKNN: IndKNNClassifier,
        TreeWalk: TreeWalkClassifier,
    }
)


@cache
def classifier_of(system: type[System]) -> type[SystemClassifier]:
    """Return the scikit-learn class of a system, which may come from another package.

    Its constructor takes the parameters of the system, followed by those of every
    `SystemClassifier`. A subclass of one of veilring's systems uses the classifier of that system.

    Args:
        system: The class of the system.
    """
    if system in _OF_A_SYSTEM:
        return _OF_A_SYSTEM[system]
    about = f"{system.title} as a classifier. {system.summary}\n\nAttributes:\n"
    own = {
        "_system": system,
        "__doc__": f"{about}    parts_: The numbers of the rows that each party holds.\n",
        "__module__": __name__,
        "__reduce__": _reduce,
    }
    base = next((_OF_A_SYSTEM[each] for each in system.__mro__ if each in _OF_A_SYSTEM), None)
    return type(f"{system.__name__}Classifier", (base or SystemClassifier,), own)


def as_classifier(system: System, **others: Any) -> SystemClassifier:
    """Return a scikit-learn classifier with the parameters of a system.

    Args:
        system: The system.
        **others: The parameters that a deployment does not have: `parties`, `partition`, `alpha`,
            `ranges` and `random_state`.
    """
    kind = classifier_of(type(system))
    return kind(**{key.name: getattr(system, key.name) for key in kind._taken()}, **others)  # noqa: SLF001  (a class of this module)


def _reduce(self: SystemClassifier) -> tuple[object, ...]:
    """Pickle an instance of a derived class by its system, which has a module."""
    return _restore, (self._system,), self.__getstate__()


def _restore(system: type[System]) -> SystemClassifier:
    kind = classifier_of(system)
    return kind.__new__(kind)
