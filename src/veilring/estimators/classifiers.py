"""The classifier of each system.

A class names its system. `SystemClassifier` derives from it the constructor, the docstring, the
steps, the cost and the guarantee; a class adds only what differs.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import DescribedKey
from veilring.data.table import Rows
from veilring.errors import InputError, PrivacyLeakWarning
from veilring.estimators.base import (
    Answered,
    SystemClassifier,
    SystemEstimator,
    SystemRegressor,
    number,
    query_keys,
    whole,
)
from veilring.nodes.journal import Traffic
from veilring.privacy.accounting import PureDP
from veilring.privacy.checks import doubt_of_delta, require
from veilring.protocols.ldp.algorithm.bayes import Classifier
from veilring.protocols.ldp.algorithm.oracles import make_oracle
from veilring.protocols.ldp.algorithm.survey import (
    DiscreteBayesSurvey,
    GaussianBayesSurvey,
    Survey,
    Tally,
    answer,
    census,
    tally_reports,
    whole_numbers,
)
from veilring.protocols.ldp.messages import Task
from veilring.protocols.ldp.roles import batch_traffic
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.noisyvotes.roles import scores_of, votes_cost
from veilring.protocols.noisyvotes.system import NoisyVotes, VotesSetup
from veilring.protocols.prediction.algorithm.predictor import Predictor
from veilring.protocols.prediction.system import IndKNN, IndKNNSetup
from veilring.protocols.prio.system import Prio
from veilring.protocols.promise import Facts, Forecast, Promise, Spent, total_cost
from veilring.protocols.radius.system import DataOwner, OwnerSetup
from veilring.protocols.ranksearch.shared import found_cost
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.release.algorithm.classifiers import Classifier as Released
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.system import Release, ReleasedSetup
from veilring.protocols.ring.system import PrivateKNN, RingSetup
from veilring.protocols.system import Scored, Setup, System
from veilring.protocols.treewalk.system import TreeWalk, TreeWalkSetup

_AT_LEAST_ONE: Final = 'a whole number of at least 1, or "auto"'


class PrivateKNNClassifier(SystemClassifier):
    """kNN over the rows of several parties, as if they were in one place.

    The parties draw a ring and play PP-TopK for the k smallest distances overall, then add up votes
    securely. A batch too large for one message is split.

    There is no ε. The transcript of PP-TopK is not differentially private for any choice of noise,
    and all parties learn exact distances and votes.
    """

    setup_: RingSetup
    _system = PrivateKNN
    _first = ("parties", "k")

    @override
    def _is_noisy(self) -> bool:
        # With `auto` the labels equal the pooled ones except with probability `error`, far below
        # what a test would notice.
        return bool(self.rounds != "auto")


class _Searching(SystemEstimator):
    """The play of a rank search, whose cost follows from its result."""

    setup_: SearchSetup
    _first = ("parties", "k")

    @override
    def _answer(self, queries: Floats, rng: Generator) -> Answered:
        setup, parts = self.setup_, list(self.setup_.parts.values())
        ranked = [setup.search(batch, parts) for batch in setup.batches(queries)]
        costs = [
            found_cost(len(parts), each.found, setup.parameters, each.tied_rows) for each in ranked
        ]
        labels, scores = Scored.together([setup.scored(each) for each in ranked])
        return Answered(labels, total_cost(*costs), scores=scores)

    @override
    def _is_noisy(self) -> bool:
        return False


class RankSearchClassifier(_Searching, SystemClassifier):
    """kNN over the rows of several parties, as if they were in one place; it reveals only totals.

    The parties count rows within public radii until the radius of the k nearest is known, then add
    up votes. A batch too large for one message is split. The number of steps of a search depends on
    the rows, and so does `cost_`.

    There is no ε: all parties learn exact totals.
    """

    _system = RankSearch
    # one process with all rows always contains all parties
    _leaves_out = frozenset({"again"})


class RankSearchRegressor(_Searching, SystemRegressor):
    """kNN regression over the rows of several parties, as if they were in one place.

    As in `RankSearchClassifier`, but the parties add up the targets of the k nearest rows, and the
    number of these rows. A prediction is their mean, rounded to the resolution.

    There is no ε: all parties learn exact totals.
    """

    _system = RankSearch
    _leaves_out = frozenset({"again", "weights"})
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reveal": {"allowed": "totals or votes"}}


class NoisyVotesClassifier(SystemClassifier):
    """r-N or k-N among parties: each adds its noise share to its counts.

    All queries are one batch under `epsilon`; another batch spends another `epsilon`. A batch has
    at most `batch` queries, and must fit into a message.

    Each party knows its own noise share, and a coalition knows those of its members. With
    `tolerated` at 0, the noise shares of the others are not enough for `epsilon`, and `privacy_`
    shows the larger loss.
    """

    setup_: VotesSetup
    system_: NoisyVotes
    _system = NoisyVotes
    _first = ("parties", "epsilon")

    @override
    def _answer(self, queries: Floats, rng: Generator) -> Answered:
        self._require_one_batch(queries)
        setup = self.setup_
        said = setup.answer(queries, rng)
        cost = votes_cost(len(setup.parties), len(queries), setup.parameters, rows=said.rows)
        return Answered(said.labels, cost, setup.loss_of(said), scores_of(said))

    @override
    def _spent(self) -> Promise:
        """Return the exact privacy loss of the batches, below `epsilon` if their balls differ."""
        losses = [PureDP(answered.loss) for answered in self._session.kept.values()]
        lost = PureDP(0.0).compose(*losses).epsilon()
        count = len(losses)
        return self._charged(Spent(lost, self.system_.delta * count, count, "batch"))


class _Releasing(SystemEstimator):
    """One release at `fit`, and predictions from its model.

    Attributes:
        model_: The released model with its guarantee; `model_.save` writes it to a file.
    """

    model_: ReleasedModel
    setup_: ReleasedSetup
    system_: Release | Prio
    _first = ("parties", "epsilon")

    @override
    def _scored(self, rows: NDArray[Any]) -> Scored:
        return Scored(self.model_.classifier.predict(self.model_.to_unit(rows)))

    @override
    def _cost(self) -> Forecast:
        return self.system_.forecast_for(self.setup_.facts, 1)

    @override
    def _begin(self, rows: NDArray[Any], numbers: Ints, rng: Generator) -> None:
        self._ranges = self._public_ranges(rows)
        # a feature without width is 0, as in the model's own schema
        self._hold(Rows(self._ranges.to_unit(rows, constant=0.0), numbers), rng)
        released, parameters = self.setup_.release(rng), self.setup_.parameters
        self.model_ = ReleasedModel.of(released, parameters, self.privacy_)

    @override
    def _spent(self) -> Promise:
        return self.system_.promise_of(self.setup_.parameters.plan)


class ReleasedClassifier(_Releasing, SystemClassifier):
    """A model that parties, or an owner, release once; predictions cost nothing more.

    The parties release one noisy sum of their rows, and the model is made from that. `fit` spends
    `epsilon`, and each further `fit` on the same rows spends it again.
    """

    _system: ClassVar[type[System]] = Release

    @property
    def _classifier(self) -> Released:
        return cast("Released", self.model_.classifier)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the estimated probability of each class, shape (rows, classes)."""
        rows = self._checked(X)
        return self.model_.predict_proba(rows)

    @override
    def _scored(self, rows: NDArray[Any]) -> Scored:
        said = super()._scored(rows)
        return said._replace(scores=self._classifier.best_scores(self.model_.to_unit(rows)))


class ReleasedRegressor(_Releasing, SystemRegressor):
    """A ridge regression that parties, or an owner, release once; predictions cost nothing more.

    The parties release noisy second moments of their rows, with the target as one more column, and
    the model is made from these. `fit` spends `epsilon`, and each further `fit` on the same rows
    spends it again.
    """

    _system = Release
    _leaves_out = frozenset({"statistic"})
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "delta": {"allowed": "a number above 0 and at most 0.01", "meaning": "The δ."}
    }


class PrioClassifier(ReleasedClassifier):
    """A model from verified reports of all rows, one each; predictions cost nothing more.

    `fit` spends `epsilon` for each row, and each further `fit` on the same rows spends it again.
    """

    _system = Prio


class OwnerRadiusClassifier(SystemClassifier):
    """r-N: the rows within a radius of a query vote, and a data owner draws the winner with noise.

    All queries of a `predict` are one batch under `epsilon`, which is divided by the overlap of the
    balls around them; another batch spends another `epsilon`. A batch has at most `batch` queries.
    """

    setup_: OwnerSetup
    _system = DataOwner
    _own = ()
    _leaves_out = frozenset({"k", "conversion", "public_rows", "count_share", "conversion_share"})
    _first = ("epsilon", "radius")


class OwnerKNNClassifier(SystemClassifier):
    """k-N: k is converted to a radius for each query, and the rows within it vote.

    A part of `epsilon` pays for the radii, and another part for the number of rows unless it is
    public. All queries of a `predict` are one batch, as in `OwnerRadiusClassifier`.
    """

    setup_: OwnerSetup
    _system = DataOwner
    _own = ()
    _leaves_out = frozenset({"radius"})
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "k": {
            "default": "auto",
            "allowed": _AT_LEAST_ONE,
            "meaning": "The approximate number of nearest rows that vote. `auto` follows from"
            " the numbers of features and rows; the number of rows is then public.",
        }
    }
    _first = ("epsilon", "k")

    @override
    def _make_system(self, **instead: object) -> System:
        require(self.k != 0, "k", self.k, _AT_LEAST_ONE)
        return super()._make_system(**instead)


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """The open stream, the number of streams so far, and the queries left in the open one."""

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
    """

    setup_: IndKNNSetup
    system_: IndKNN
    _system = IndKNN
    _own = (
        DescribedKey(
            "centre",
            None,
            "a number for each feature, in the unit of the rows; or none",
            "The public point from which directions are measured.",
        ),
    )
    _first = ("epsilon", "delta")

    @override
    def _set_up(self, parts: Mapping[str, Rows], facts: Facts) -> Setup:
        if self.centre is None:
            return super()._set_up(parts, facts)
        centre = self._ranges.to_unit(np.asarray(self.centre, np.float64)[None])
        return IndKNNSetup(self.system_, parts, facts, centre=centre)

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        super()._hold(rows, rng)
        if doubt := doubt_of_delta(self.system_.delta, len(rows)):
            warnings.warn(f"{doubt}.", PrivacyLeakWarning, stacklevel=4)
        self._stream = _Stream()

    @override
    def _answer(self, queries: Floats, rng: Generator) -> Answered:
        asked, count, stream = self.setup_.directions(queries), len(queries), self._stream
        if stream.predictor is None or stream.left < count:
            declared = self.setup_.rules(count).queries
            if count > declared:
                raise InputError.because(
                    f"there are {count} queries at once, but `queries` is {declared}",
                    field="queries",
                )
            stream.predictor = self.setup_.open_stream(asked)
            stream.number, stream.left = stream.number + 1, declared
        stream.left -= count
        labels = [said.label for said in stream.predictor.answer_block(asked, rng)]
        return Answered(np.array(labels), self.system_.forecast_for(self.setup_.facts, count))

    @override
    def _spent(self) -> Promise:
        return self._charged(self.setup_.spent(self._stream.number))


class TreeWalkClassifier(SystemClassifier):
    """The labels of public rows near a query that a client hides from their server.

    The rows and their labels are public. For each query of a `predict`, a client asks with its own
    noise, and the nearest of the rows found vote. A repeated query, in any batch, gets its earlier
    answer and spends nothing. At most 16 features are supported: with more, every half of a tree is
    nearly all of it.
    """

    setup_: TreeWalkSetup
    _system = TreeWalk
    _own = ()
    _first = ("epsilon", "by")

    @override
    def _hold(self, rows: Rows, rng: Generator) -> None:
        super()._hold(rows, rng)
        self._known: dict[bytes, tuple[int, Floats]] = {}

    @override
    def _answer(self, queries: Floats, rng: Generator) -> Answered:
        names = query_keys(queries)
        fresh = {name: row for row, name in enumerate(names) if name not in self._known}
        asked, setup = queries[list(fresh.values())], self.setup_
        if len(asked):
            said = setup.score(asked, rng)
            each = zip(said.labels.tolist(), cast("Floats", said.scores), strict=True)
            self._known.update(zip(fresh, each, strict=True))
        costs = [setup.lookup.cost(len(part)) for part in setup.batches(asked)]
        labels, shares = zip(*(self._known[name] for name in names), strict=True)
        return Answered(np.array(labels), total_cost(*costs), scores=np.array(shares))

    @override
    def _spent(self) -> Promise:
        return self.setup_.promise


class LDPClassifier(SystemClassifier):
    """Shared parts of the LDP estimators: playing the clients, and predicting.

    `fit` passes each row through the same `perturb` that a client calls on its own machine, and
    only the sums of the reports reach the model. The accuracy is therefore that of a real
    collection.

    Attributes:
        epsilon_: The exact ε that each client spent; at most `epsilon`.
        tally_: The sums of the reports, the only input of the model.
        model_: The public steps, followed by the model; save it with `save_classifier`.
    """

    epsilon_: float
    tally_: Tally
    survey_: Survey
    model_: Classifier
    system_: LDPBayes
    _own: ClassVar[tuple[DescribedKey, ...]] = ()
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "epsilon": {
            "allowed": f"{LDPBayes.model_fields['epsilon'].description}; infinity means no"
            " noise, with every client answering every question"
        }
    }

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Return the logarithm of each class's probability, shape (rows, classes)."""
        rows = self._checked(X)
        return self.model_.log_probabilities(rows)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return each class's probability, shape (rows, classes)."""
        return np.exp(self.predict_log_proba(X))

    @override
    def _scored(self, rows: NDArray[Any]) -> Scored:
        return Scored(self.model_.classify(rows), np.exp(self.model_.log_probabilities(rows)))

    @override
    def _cost(self) -> Forecast:
        """Return the cost of the collection, with each client as a party."""
        task, total = Task({}, self.survey_), Traffic()
        for question, clients in enumerate(self.tally_.counts):
            total = total.plus(batch_traffic(task, question, 1, times=clients))
        return Forecast(1, total)

    @override
    def _spent(self) -> Promise:
        """Return the budget that each client spends on its report."""
        promise = replace(self.system_.promise(), epsilon=self.epsilon_)
        if self.epsilon_ < inf:
            return promise
        return replace(promise, note="Nothing is protected: rows are counted without noise.")

    @override
    def _begin(self, rows: NDArray[Any], numbers: Ints, rng: Generator) -> None:
        is_noisy = self._is_noisy()
        # without noise nothing of the system's ε is spent
        instead = {} if is_noisy else {"epsilon": LDPBayes().epsilon}
        self.system_ = cast("LDPBayes", self._make_system(**instead))
        self.survey_ = survey = self._survey(rows)
        if is_noisy:
            self.tally_ = tally_reports(survey, answer(survey, rows, numbers, rng).reports)
        else:
            self.tally_ = census(survey, rows, numbers, rng)
        self.epsilon_ = survey.exact_epsilon
        self.model_ = self.system_.learn(survey, self.tally_)

    def _survey(self, rows: Floats) -> Survey:
        """Return the survey, which may depend only on public numbers of the rows."""
        ranges, classes = self._public_ranges(rows), len(self.classes_)
        return self.system_.survey(ranges, classes, epsilon=number("epsilon", self.epsilon))


class LDPNaiveBayes(LDPClassifier):
    """Discrete naive Bayes under local differential privacy."""

    survey_: DiscreteBayesSurvey
    _system = LDPBayes
    _leaves_out = frozenset({"kind", "variance_floor"})
    _own = (
        DescribedKey(
            "domains",
            None,
            "a whole number for each feature, or none",
            "The number of values of each feature, if the rows contain them numbered from 0. By"
            " default, features are numbers, which are put into bins of equal width.",
        ),
    )

    @override
    def _survey(self, rows: Floats) -> Survey:
        if self.domains is None:
            return super()._survey(rows)
        self.ranges_origin_ = "no ranges: values are numbered"
        domains = [whole("domains", each) for each in self.domains]
        make = make_oracle(self.system_.oracle, number("epsilon", self.epsilon))
        return DiscreteBayesSurvey.of(domains, len(self.classes_), make)

    @override
    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        rows = super()._checked(X)
        if self.survey_.steps:
            return rows
        columns = zip(rows.T, self.survey_.domains, strict=True)
        numbered = [whole_numbers(column, values, n) for n, (column, values) in enumerate(columns)]
        return np.column_stack(numbered)


class LDPGaussianNaiveBayes(LDPClassifier):
    """Gaussian naive Bayes under local differential privacy."""

    survey_: GaussianBayesSurvey
    _system = LDPBayes
    _leaves_out = frozenset({"kind", "bins", "smoothing"})
    _changed: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LDPClassifier._changed,  # noqa: SLF001  (its base)
        "kind": {"default": "gaussian-bayes"},
    }


_OF_A_SYSTEM: Final[Mapping[type[System], type[SystemClassifier]]] = {
    each._system: each  # noqa: SLF001  (a class of this module)
    for each in (
        PrivateKNNClassifier,
        RankSearchClassifier,
        ReleasedClassifier,
        PrioClassifier,
        NoisyVotesClassifier,
        IndKNNClassifier,
        TreeWalkClassifier,
    )
}


@cache
def classifier_of(system: type[System]) -> type[SystemClassifier]:
    """Return the scikit-learn class of a system, which may come from another package.

    Its constructor takes the parameters of the system, followed by those of every
    `SystemClassifier`. A subclass of one of veilring's systems uses the classifier of that system.
    """
    if system in _OF_A_SYSTEM:
        return _OF_A_SYSTEM[system]
    bases = (_OF_A_SYSTEM[each] for each in system.__mro__ if each in _OF_A_SYSTEM)
    own = {
        "_system": system,
        "__doc__": f"{system.title} as a classifier. {system.summary}",
        "__module__": __name__,
        "__reduce__": _reduce,
    }
    return type(f"{system.__name__}Classifier", (next(bases, SystemClassifier),), own)


def as_classifier(system: System, **others: Any) -> SystemClassifier:
    """Return a scikit-learn classifier with the parameters of a system.

    Args:
        **others: The parameters that a deployment does not have: `parties`, `partition`, `alpha`,
            `ranges`, `schema` and `random_state`.
    """
    kind = classifier_of(type(system))
    return kind(**{key.name: getattr(system, key.name) for key in kind._taken()}, **others)  # noqa: SLF001  (a class of this module)


def _reduce(self: SystemClassifier) -> tuple[object, ...]:
    """Pickle an instance of a derived class by its system, which has a module."""
    return _restore, (self._system,), self.__getstate__()


def _restore(system: type[System]) -> SystemClassifier:
    kind = classifier_of(system)
    return kind.__new__(kind)
