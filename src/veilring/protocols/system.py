"""A system: its parameters, its guarantee, the forecast of its cost, and its parties.

A `System` is the interface between a family of protocols and all tools above it. It is one model of
parameters: names, defaults, ranges and help texts are defined only there. It states its guarantee
(`promise`) and cost (`forecast`), and `setup` gives rows to its parties. A `Setup` plays batches of
queries: over a network with `play`, or in one process, by the same vectorised steps, with `label`.

Scenarios, sweeps, reports, the comparison, the estimators and `veilring.run` use only this
interface of a system.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from pydantic import ValidationError
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import Section, scenario_error
from veilring.data.columns import Target
from veilring.data.table import Features, Rows
from veilring.errors import InputError
from veilring.nodes.adversary import Adversary
from veilring.nodes.ring import PARTIES_MIN, Ring
from veilring.nodes.run import Run
from veilring.protocols.claims import (
    EXAMPLE_PARTIES,
    Argument,
    Batch,
    Coalition,
    Comparison,
    Example,
    Findings,
    exchange_rows,
    make_example,
    remove_row,
    replace_query,
)
from veilring.protocols.membership import Membership, PublicModel
from veilring.protocols.promise import Facts, Forecast, Leakage, Measure, Promise, Spent

PARTIES: Final = 8
"""The default number of parties."""
SERVER: Final = "server"
"""The name of a party that holds no share of the rows: a collector, or an owner of all rows."""
NEIGHBOURS: Final = 5
"""The number of neighbours in the pooled classifier for systems without their own k."""
# If draws decide a label with probability 1/2, all of these agree in 1 % of batches.
_LABELLINGS: Final = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Play:
    """One batch, ready for a cluster, with the forecast of its cost.

    Attributes:
        forecast: The closed form of the cost. Its argument is the run, because secret draws of
            clients may decide how their reports are bundled.
        labels: A function that returns the labels of the queries, shape (queries,), from the result
            of a party that learns them: class numbers, or steps of a target.
        scores: A function that returns the scores of each class, as in `Scored`, from the same
            result; none if it contains only labels.
        learners: The parties that learn the labels, the client first.
        public: The arguments of every party's role.
        only: Additional arguments of individual parties, by name.
        watch: The parties whose views the forecast needs.
    """

    forecast: Callable[[Run[Any]], Forecast]
    labels: Callable[[Any], Ints]
    learners: tuple[str, ...]
    public: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    watch: tuple[str, ...] = ()
    scores: Callable[[Any], Floats] | None = None


class Scored(NamedTuple):
    """Labels of queries, with the scores that were revealed with them.

    Attributes:
        labels: Class numbers, or steps of a target, shape (queries,).
        scores: A score of each class, shape (queries, classes), the highest that of the label:
            probabilities or shares of votes if each row adds up to 1. None if only labels are
            revealed.
    """

    labels: Ints
    scores: Floats | None = None

    @classmethod
    def together(cls, batches: Sequence["Scored"]) -> "Scored":
        """Return the labels and scores of all batches, at least one, in order."""
        scores = [each.scores for each in batches if each.scores is not None]
        labels = np.concatenate([each.labels for each in batches])
        return cls(labels, np.concatenate(scores) if scores else None)


class PlannedNoise(NamedTuple):
    """Independent noise of numbers in an answer.

    Attributes:
        values: The noise in units of its planned standard deviation.
        kurtosis: The maximum kurtosis of the planned noise; 3 for a Gaussian.
    """

    values: Floats
    kurtosis: float


class Setup(ABC):
    """A system whose parties hold their rows, ready to answer.

    The queries of its methods have the shape (queries, features), scaled into [0, 1], an answer is
    the result of a party that learns the labels, and `rng` is the randomness of all parties.

    Attributes:
        is_exact: Whether labels always equal those of `reference`.
        observed: The numbers that `observe` draws, as a noun phrase, if the observers see only a
            function of them; otherwise empty.
        parts: The rows of each party, by its name.
    """

    is_exact: ClassVar[bool] = False
    observed: ClassVar[str] = ""

    def __init__(self, system: "System", parts: Mapping[str, Rows], facts: Facts) -> None:
        system.check_label(facts.target)
        self.system = system
        self.parts = dict(parts)
        self.facts = facts

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of all parties: those that hold rows unless overridden."""
        return tuple(self.parts)

    @property
    def resident(self) -> tuple[object, ...]:
        """The private input of each party, in the order of `parties`."""
        return tuple(self.parts.values())

    @property
    def observers(self) -> tuple[str, ...]:
        """The parties whose pooled views an audit examines; the client is the first of them."""
        return self.parties[: self.system.pooling(len(self.parts))]

    @property
    @abstractmethod
    def role(self) -> Callable[..., Awaitable[Any]]:
        """The coroutine function that all parties play, from the top level of a module."""

    @property
    @abstractmethod
    def batch_max(self) -> int:
        """The maximum number of queries in one batch."""

    @property
    def rounds(self) -> int | None:
        """The number of rounds of the vector for a batch, in systems with a circulating vector."""
        return None

    def batches(self, queries: Floats) -> list[Floats]:
        """Return queries in batches that are answered at once."""
        size = self.batch_max
        return [queries[first : first + size] for first in range(0, len(queries), size)]

    @abstractmethod
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        """Return a batch that is ready for a cluster.

        Args:
            among: The parties that take part; all unless some were lost.
            ring: The order of the parties, if it was dealt rather than drawn by them.
        """

    @abstractmethod
    def label(self, queries: Floats, rng: Generator) -> Ints:
        """Label a batch in this process, without messages, with the same steps that parties run."""

    def score(self, queries: Floats, rng: Generator) -> Scored:
        """Label a batch as `label` does, with the scores that its answer reveals."""
        return Scored(self.label(queries, rng))

    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats | None:
        """Draw views of the observers in this process, with the same steps that parties run.

        An audit of an ε compares many more of these than it can play over messages. By default
        they are the labels of the batch; None if queries are private, because the observers then
        learn no labels.

        Args:
            runs: The number of independent batches.

        Returns:
            Numbers that the observers can compute from their views of each batch, shape
            (runs, numbers); NaN for a number that a view lacks. If the guarantee is proved for more
            numbers, from which the views are computed, it may be these; name them in `observed`.
        """
        if not self.system.hides_rows:
            return None
        return np.array([self.label(queries, rng) for _ in range(runs)], np.float64)

    def noise(
        self,
        queries: Floats,  # noqa: ARG002  (for a subclass)
        answer: Any,  # noqa: ANN401, ARG002  (what its role returns, for a subclass)
    ) -> PlannedNoise | None:
        """Return the noise in an answer, which an audit tests; None if the system adds none."""
        return None

    @abstractmethod
    def spent(self, batches: int) -> Spent:
        """Return the total spending of the given number of batches."""

    def model(
        self,
        answer: Any,  # noqa: ANN401, ARG002  (what its role returns, for a subclass)
        among: Sequence[str],  # noqa: ARG002  (likewise)
        *,
        seeded: bool,  # noqa: ARG002  (likewise)
    ) -> PublicModel | None:
        """Return the public model contained in the answer to a batch; none in most systems.

        Args:
            among: The parties that took part.
            seeded: Whether all noise was drawn from a seed, so that no ε holds against anyone who
                knows it.
        """
        return None

    def reference(self, queries: Floats, among: Sequence[str] | None = None) -> Ints:
        """Label queries without any privacy, with all rows of some parties in one place.

        By default they are the rows of all parties.
        """
        from veilring.protocols.ring.algorithm.classify import pooled_knn, pooled_mean  # noqa: PLC0415  (one system of many)

        rows = together(self.parts, among)
        k = min(NEIGHBOURS, len(rows))
        if self.facts.target is not None:
            return pooled_mean(queries, rows.features, rows.labels, k)
        return pooled_knn(queries, rows.features, rows.labels, self.facts.classes, k)

    def can_do_with(self, parties: Sequence[str]) -> bool:
        """Return whether a batch can be played by these parties, after others were lost."""
        return len(parties) >= PARTIES_MIN

    def expected(self, queries: Floats, among: Sequence[str]) -> Ints | None:
        """Return the only right labels of a batch, shape (queries,); None if draws decide them.

        Without an ε, they are those of `label` if different generators give the same ones. A system
        whose labels rarely depend on draws overrides this.
        """
        if self.is_exact:
            return self.reference(queries, among)
        if self.system.promise(parties=len(self.parts)).epsilon is not None:
            return None
        parts = {name: self.parts[name] for name in among if name in self.parts}
        rows = None if self.facts.rows is None else sum(map(len, parts.values()))
        try:
            same = self.system.setup(parts, replace(self.facts, parties=len(parts), rows=rows))
        except InputError:  # which is set up for all parties only
            return None
        first, *others = (
            same.label(queries, np.random.default_rng(seed)) for seed in range(_LABELLINGS)
        )
        return first if all(np.array_equal(first, each) for each in others) else None

    @property
    def knows_labels(self) -> bool:
        """Whether `find_wrong` compares labels with the right ones, not only with each other."""
        if type(self).find_wrong is not Setup.find_wrong:
            return True
        return self.expected(np.zeros((1, self.facts.features)), self.parties) is not None

    def find_wrong(
        self, queries: Floats, labels: Mapping[str, Ints], among: Sequence[str]
    ) -> list[str]:
        """Return the violated invariants of a run, one sentence each.

        By default labels equal `expected`. Where draws decide the labels, they are valid and agree;
        a subclass that knows more about right labels checks it here. Labels are those of each party
        whose role ended without an error, by name.
        """
        if not labels:
            return []
        expected = self.expected(queries, among)
        if expected is not None:
            right = "the pooled classifier's" if self.is_exact else "those of `Setup.label`"
            return [
                f"the labels of {party} differ from {right}"
                for party, found in labels.items()
                if not np.array_equal(found, expected)
            ]
        wrong = []
        for party, found in labels.items():
            inside = ((found >= 0) & (found < self.facts.classes)).all()
            if found.shape != (len(queries),) or not inside:
                wrong.append(f"{party} has invalid labels")
            elif not np.array_equal(found, next(iter(labels.values()))):
                wrong.append(f"the labels of {party} differ from another party's")
        return wrong

    def leakage(
        self,
        queries: Floats,  # noqa: ARG002  (a subclass's own)
        trials: int,  # noqa: ARG002  (likewise)
        rng: Generator,  # noqa: ARG002  (likewise)
    ) -> Leakage | None:
        """Estimate the leakage of a run from at most `trials` simulated ones, if no ε bounds it."""
        return None

    def attack(
        self,
        batches: Mapping[int, Batch],  # noqa: ARG002  (a subclass's own)
        coalition: Coalition,  # noqa: ARG002  (likewise)
    ) -> Findings | None:
        """Attack the views of a coalition, and compare the findings with the truth.

        Args:
            batches: The batches that both members and other parties took part in, by number.
        """
        return None


def _of_parameter(mistake: InputError) -> InputError:
    """Return a mistake in a file as a mistake in a parameter, without the key of the file."""
    if mistake.message:
        return InputError.because(mistake.sentence, field=mistake.field)
    return InputError.of(mistake, mistake.field)


class PeerSetup(Setup):
    """A setup in which all parties hold rows; a subclass adds local labelling and spending.

    The client is the first party. The cost of a batch is that of `System.forecast_for`, and
    `System.membership` defines how the parties take part.
    """

    def __init__(self, system: "System", parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        membership = system.membership(facts)
        if membership is None:
            raise InputError.because(
                f"{system.name} is not a system in which all parties hold rows",
                field="protocol.name",
            )
        self.membership = membership

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        return tuple(self.membership.keep(rows) for rows in self.parts.values())

    @property
    @override
    def role(self) -> Callable[..., Awaitable[Any]]:
        return self.membership.role

    @property
    @override
    def batch_max(self) -> int:
        return self.membership.batch_max

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        if len(parties) != self.facts.parties:  # whose membership is known
            try:
                self.system.membership(replace(self.facts, parties=len(parties)))
            except InputError:
                return False
        return super().can_do_with(parties)

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        parties = self.parties if among is None else tuple(among)
        member, facts, client = self.membership, self.facts, parties[0]
        among_them = replace(facts, parties=len(parties))
        return Play(
            forecast=lambda _run: self.system.forecast_for(among_them, len(queries)),
            labels=member.labels,
            learners=parties if member.all_learn else (client,),
            public={"client": client, **member.public},
            only={client: {"queries": queries}},
            scores=member.scores,
        )


class ServerSetup(Setup):
    """A setup with a server that has all rows and one client: the first party that held rows.

    A subclass adds their role, the private inputs of the server and the client (`resident`), and
    how to play, label and charge a batch.
    """

    @property
    def client(self) -> str:
        """The name of the client."""
        return next(iter(self.parts))

    @property
    @override
    def parties(self) -> tuple[str, str]:
        return SERVER, self.client

    @property
    @override
    def observers(self) -> tuple[str, ...]:
        return (self.client if self.system.hides_rows else SERVER,)

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        return set(parties) == set(self.parties)


@dataclass(frozen=True, slots=True)
class Tunable:
    """The values of a parameter worth trying on public rows.

    It is part of the annotation of the parameter: ``tau: Annotated[float, Tunable.of(0.5, 0.7)]``.

    Attributes:
        values: A function that returns the values, from the public facts of the data.
    """

    values: Callable[[Facts], Sequence[object]]

    @classmethod
    def of(cls, *values: object) -> Self:
        """Return values that are equal for all data."""
        return cls(lambda _facts: values)


class System(Section, ABC):
    """A private system with its public parameters.

    A subclass adds its parameters as fields, each with its default, its range and a description of
    the allowed values.

    Attributes:
        name: The name of the system, as for `--protocol`.

    Raises:
        InputError: If a parameter is not allowed, with a line for each one.
    """

    title: ClassVar[str]
    """The name of the system in a table or a heading."""
    summary: ClassVar[str]
    """One sentence that describes the system."""
    hides_rows: ClassVar[bool] = True
    """Whether rows are private; otherwise only queries are."""
    predicts_numbers: ClassVar[bool] = False
    """Whether the label may be a number with a public range, see `Features.target`."""
    is_lasting: ClassVar[bool] = False
    """Whether an ε spent once covers the labels of any number of queries."""
    measures: ClassVar[Mapping[str, Measure]] = {}
    """The measures returned by `Setup.leakage`, by name."""
    notices_liars: ClassVar[bool] = False
    """Whether the system guarantees that no malicious party changes a result unnoticed."""
    arguments: ClassVar[Mapping[str, Argument]] = {}
    """The claims of the guarantee that no audit tests, by name, with the reason for each."""
    deployment: ClassVar[str] = "veilring.deployment.peers"
    """The module that deploys its parties: it has a table `DUTIES`, with a
    `veilring.deployment.config.Duty` for each role of a configuration. By default all parties hold
    rows, see `membership`."""
    messages_format: ClassVar[int] = 1
    """The version of the messages of its parties. Raise it when a field or the order of any of them
    changes, those of shared protocols included: members of a deployment whose versions differ then
    refuse each other before anything is sent or spent."""

    name: str

    def __init__(self, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            found = scenario_error(error, type(self))
            first, *others = map(_of_parameter, (found, *found.others))
            raise first.with_others(others) from None

    # Pydantic also calls a custom `__init__` for the tables of a file, whose mistakes are reported
    # all together with their places in that file. This marks ours as one that adds nothing to them.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # which pydantic reads

    @property
    def has_owner(self) -> bool:
        """Whether one party must be trusted with all rows."""
        return False

    @property
    def reveals_scores(self) -> bool:
        """Whether an answer has a score of each class: see `Setup.score`."""
        return False

    @property
    def trust(self) -> str:
        """The trusted parties, in a few words.

        They may contain `{parties}`, `{honest}` (the parties that do not collude in a comparison)
        and `{outside}` (those outside the largest coalition, of `pooling` parties).
        """
        return "all {parties}"

    @property
    def findings(self) -> type[Findings] | None:
        """The class of the findings of `Setup.attack`; None if no attack is known."""
        return None

    @property
    def draws_ring(self) -> bool:
        """Whether the parties draw a ring, which may be dealt to them instead."""
        return False

    @abstractmethod
    def promise(self, *, parties: int = PARTIES) -> Promise:
        """Return the guarantee among the given number of parties."""

    def promise_about(self, facts: Facts) -> Promise:
        """Return the guarantee for public facts: by default that among their parties and rows."""
        return self.promise(parties=facts.parties).among(facts.rows)

    @classmethod
    def check_label(cls, target: Target | None) -> None:
        """Refuse a number as the label, unless the system predicts numbers."""
        if target is not None and not cls.predicts_numbers:
            raise InputError.because(
                f"the label is {target}, but this system ({cls.title}) predicts only classes; use"
                " rank-search or release (RankSearchRegressor or ReleasedRegressor), or choose"
                " another label",
                field="name",
            )

    def forecast(
        self,
        *,
        parties: int = PARTIES,
        queries: int,
        features: int | Features,
        classes: int = 2,
        rows: int | None = None,
    ) -> Forecast:
        """Return the cost of labelling queries, before anything is run.

        Args:
            features: The number of features of a row, or the public schema of a table.
            classes: The number of classes, unless `features` is a schema, which includes it.
            rows: The total number of rows of all parties, if the cost depends on it.

        Raises:
            InputError: As raised by `forecast_for`.
        """
        return self.forecast_for(Facts.of(parties, features, classes, rows), queries)

    @abstractmethod
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        """Return the cost of labelling queries, before anything is run.

        Raises:
            InputError: If a parameter does not fit the public facts, or the cost depends on a
                number of rows that is not public.
        """

    @abstractmethod
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> Setup:
        """Give each party its rows, by its name.

        Raises:
            InputError: If a parameter does not fit the parties or the rows.
        """

    def pooling(self, parties: int) -> int:  # noqa: ARG002  (a subclass's own)
        """Return the number of parties, among the given number, that may pool their views."""
        return 1

    def example(self, *, parties: int = EXAMPLE_PARTIES) -> Example:
        """Return a small example of some parties that an audit plays thousands of times."""
        return make_example(parties)

    def comparisons(self, example: Example) -> tuple[Comparison, ...]:
        """Return pairs of worlds, each with the promised bound on the difference of their views.

        The example is the first world of each pair. By default, if there is an ε, one row is
        removed or one query replaced. Otherwise two parties exchange their rows, and no other party
        may be able to tell the worlds apart.
        """
        promise = self.promise(parties=len(example.parts))
        if promise.epsilon is None:
            return (exchange_rows(example),)
        if not self.hides_rows:
            return (replace_query(example, epsilon=promise.epsilon),)
        return (remove_row(example, epsilon=promise.epsilon, delta=promise.delta),)

    def membership(self, facts: Facts) -> Membership | None:  # noqa: ARG002  (a subclass's own)
        """Return how a party takes part in a deployment in which all parties hold rows.

        None means that a deployment of this system needs another kind of party, such as a server.
        If an ε is spent, each party charges it to its own ledger: for each batch, or for the one
        result that answers all queries.

        Args:
            facts: The public facts; a deployment knows neither the number of rows nor that of
                queries.

        Raises:
            InputError: If a parameter does not fit the public facts.
        """
        return None

    @property
    def counts_publicly(self) -> bool:
        """Whether the number of rows of all parties together has to be public."""
        return False

    @classmethod
    def is_bounded(cls) -> bool:
        """Return whether an ε bounds the leakage: whether there is a parameter `epsilon`."""
        return "epsilon" in cls.model_fields

    @classmethod
    def suited(cls, *, epsilon: float | None, k: int, tolerated: int) -> Self:
        """Return the system with the settings that a comparison applies to all systems.

        Args:
            epsilon: The ε of one batch; none for the default.
            k: The number of neighbours that vote in systems without an ε.
            tolerated: The number of parties that may collude.
        """
        given: dict[str, float] = {"tolerated": tolerated}
        if not cls.is_bounded():
            given["k"] = k
        elif epsilon is not None:
            given["epsilon"] = epsilon
        return cls(**{name: value for name, value in given.items() if name in cls.model_fields})

    @classmethod
    def forms(cls, *, epsilon: float | None, k: int, tolerated: int) -> Mapping[str, Self]:
        """Return the forms of the system that a comparison shows side by side, by name.

        A system with the same guarantee in all forms has one form, without a name. The arguments
        are those of `suited`.
        """
        return {"": cls.suited(epsilon=epsilon, k=k, tolerated=tolerated)}

    @classmethod
    def tunable(cls) -> dict[str, Tunable]:
        """Return the parameters that can be tuned on public rows, in their order."""
        return {
            name: each
            for name, field in cls.model_fields.items()
            for each in field.metadata
            if isinstance(each, Tunable)
        }

    def rule(self, facts: Facts) -> str:
        """Describe the values of the tunable parameters for these data."""
        del facts  # a subclass's own, if values follow from them
        return ", ".join(f"{name} = {getattr(self, name)}" for name in self.tunable())

    def replaced(self, **parameters: object) -> Self:
        """Return the system with other values of some parameters.

        Raises:
            InputError: If there is no such parameter, or its value is not allowed.
        """
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**kept, **parameters})

    def adversaries(self) -> Mapping[str, type[Adversary]]:
        """Return the built-in adversaries of this system, by name."""
        return {}


def together(parts: Mapping[str, Rows], among: Sequence[str] | None = None) -> Rows:
    """Return the rows of all parties, or of some of them, in one table."""
    held = [parts[name] for name in (parts if among is None else among) if name in parts]
    return Rows(
        np.concatenate([rows.features for rows in held]),
        np.concatenate([rows.labels for rows in held]),
    )
