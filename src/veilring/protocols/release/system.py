"""Release as a system: its parameters, its guarantee, and one release by peers or an owner."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, Self, get_args

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.data.table import Features, Rows
from veilring.errors import InputError
from veilring.nodes.ring import PARTIES_MIN, Ring
from veilring.privacy.checks import require
from veilring.privacy.shares import DELTA_MAX, EPSILON_MAX
from veilring.protocols.claims import COMPARED_TARGET, Comparison, Example
from veilring.protocols.membership import Membership, Once
from veilring.protocols.promise import (
    SEED_TELLS,
    Facts,
    Forecast,
    Promise,
    Spent,
    colluding,
    measure_of,
)
from veilring.protocols.release.algorithm.classifiers import Classifier, Predictor
from veilring.protocols.release.algorithm.noise import (
    Account,
    ApproximateNoise,
    Trust,
    tolerated_default,
)
from veilring.protocols.release.algorithm.rule import Method, Plan, Rule
from veilring.protocols.release.algorithm.statistic import Statistic
from veilring.protocols.release.algorithm.steps import (
    Released,
    ReleaseParameters,
    read_release,
    release_steps,
    released_size,
    simulate_draws,
    simulate_release,
    write_release,
)
from veilring.protocols.release.model import ReleasedModel
from veilring.protocols.release.roles import (
    owner_cost,
    release_by_owner,
    release_cost,
    release_rows,
    require_ready,
)
from veilring.protocols.seeding import Quorum
from veilring.protocols.system import (
    PARTIES,
    SERVER,
    PlannedNoise,
    Play,
    Scored,
    Setup,
    System,
    Tunable,
    together,
)

_OF_CLASSES: Final = tuple(each for each in get_args(Method) if each != "ridge")
# All queries of a client are labelled by one release: no batch is too large.
_QUERIES_MAX: Final = 2**62


class Release(System):
    """Release of one noisy sum of the parties' rows, from which a model labels all queries.

    Each party adds a noise share to a statistic of its rows; a masked sum adds them up. If the
    label is a number, the statistic is that of a ridge regression.
    Computations on the total cost nothing more, so queries are free and stay with the client.

    Attributes:
        name: `release`.
        epsilon: The price of the release.
        delta: The δ; 0 for a pure guarantee.
        tolerated: The number of parties that may collude, including the observer, so that 0 is
            equivalent to 1. `auto` is the largest number below half of the parties.
        lost: The number of parties that may be lost during the release. Each party adds more noise
            to compensate; with 0, the loss of one party ends the release.
        statistic: The statistic to add up; `auto` chooses it by public numbers.
        distribution: The distribution of the noise if `delta` is above 0; pure noise is discrete
            Laplace.
        trusted: Whether one owner holds all rows and adds the noise alone.
        sum: The way to add up: each party does, or the client does and sends the totals to the
            others.
    """

    predicts_numbers: ClassVar[bool] = True
    is_lasting: ClassVar[bool] = True
    # 4: class means have the numbers of rows beside them.
    messages_format: ClassVar[int] = 4
    counts_publicly: ClassVar[bool] = True
    title: ClassVar[str] = "release"
    summary: ClassVar[str] = (
        "Parties release one noisy sum; a model made from it labels all queries."
    )

    name: Literal["release"] = "release"
    epsilon: float = Field(1.0, gt=0, le=EPSILON_MAX)
    delta: float = Field(1e-5, ge=0, le=DELTA_MAX)
    tolerated: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    lost: int = Field(0, ge=0)
    statistic: Annotated[Literal["auto", Method], Tunable.of(*_OF_CLASSES)] = "auto"
    distribution: ApproximateNoise = "gaussian"
    trusted: bool = False
    sum: Literal["all-to-all", "star"] = "all-to-all"

    @property
    @override
    def has_owner(self) -> bool:
        return self.trusted

    @property
    @override
    def reveals_scores(self) -> bool:
        return True

    @property
    @override
    def trust(self) -> str:
        return "an owner" if self.trusted else "{honest} of {parties}"

    @override
    def pooling(self, parties: int) -> int:
        return self.trust_among(parties).tolerated

    @override
    def promise(self, *, parties: int = PARTIES) -> Promise:
        pooling = self.pooling(parties)
        losing = f"; at most {self.lost} drop out" if self.lost else ""
        owner = "an owner trusted with all rows; clients may be malicious"
        peers = (
            f"semi-honest parties: all add their noise, and {colluding(pooling, parties)}{losing}"
        )
        note = "The number of rows is public."
        if self.lost and not Quorum(parties, pooling, self.lost).withstands_lies:
            note += (
                f" With {self.lost} that may drop out, the client has to be honest about who did:"
                " a client that colludes could open the sums of two sets of parties."
            )
        return Promise(
            protects="the owner's rows" if self.trusted else "each party's rows",
            against="anyone who sees the release"
            + ("" if self.trusted else ", including the other parties"),
            threat_model=owner if self.trusted else peers,
            adjacency="one row added or removed",
            epsilon=self.epsilon,
            delta=self.delta,
            unit="release",
            measure=measure_of(self.delta),
            learned="everyone: the noisy totals and the model made from them; queries stay with"
            " the clients",
            note=note,
        )

    @override
    def promise_about(self, facts: Facts) -> Promise:
        """Return the guarantee for public facts: that of their plan, if the rows are public."""
        if facts.rows is None:
            return super().promise_about(facts)
        return self.promise_of(self.bind(facts).plan)

    def promise_of(self, plan: Plan) -> Promise:
        """Return the guarantee of a plan, which may be pure even if a δ was allowed."""
        exact = self.replaced(delta=plan.delta).promise(parties=plan.trust.parties)
        return exact.among(plan.rows)

    def trust_among(self, parties: int) -> Trust:
        """Return the parties whose noise shares count among the given number of parties."""
        if self.trusted:
            return Trust(1, 0)
        if parties < PARTIES_MIN:
            raise InputError("parties", parties, f"at least {PARTIES_MIN}, or `trusted = true`")
        automatic = self.tolerated == "auto"
        tolerated = tolerated_default(parties) if automatic else int(self.tolerated)
        # A party that observes the total knows its own noise share.
        return Trust(parties, max(1, tolerated), self.lost)

    def own_statistic(self, features: Features, rows: int) -> Statistic[Predictor] | None:  # noqa: ARG002  (a subclass's own)
        """Return a custom statistic to release in place of the built-in ones.

        Override it for a custom statistic of the public schema and number of rows; the release, its
        guarantee and its cost follow.
        """
        return None

    def bind(self, facts: Facts) -> ReleaseParameters:
        """Return the public parameters; refuse those that do not fit the public facts."""
        if facts.rows is None:
            raise InputError.because(
                "the noise and the statistic depend on the number of rows of all parties"
                " together, which must be declared; give `rows`",
                field="rows",
            )
        require(facts.rows >= 1, "rows", facts.rows, "a whole number of at least 1")
        features = facts.schema or Features.of_numbers(facts.features, facts.classes)
        trust = self.trust_among(facts.parties)
        rule = Rule(features, facts.rows, self.epsilon, self.delta, trust, self.distribution)
        own = self.own_statistic(features, facts.rows)
        return ReleaseParameters(features, rule.plan(self.statistic if own is None else own), own)

    @override
    def forecast_for(self, facts: Facts, queries: int) -> Forecast:
        """Return the cost of a release, for any number of queries."""
        return self.cost(self.bind(facts), facts.parties)

    def cost(self, parameters: ReleaseParameters, parties: int) -> Forecast:
        """Return the closed form of the cost of a release."""
        if self.trusted:
            return owner_cost(parameters)
        return release_cost(parties, parameters, self.sum)

    @classmethod
    @override
    def forms(cls, *, epsilon: float | None, k: int, tolerated: int) -> Mapping[str, Self]:
        """Return releases by peers with and without a δ, and a release by an owner."""
        peers = cls.suited(epsilon=epsilon, k=k, tolerated=tolerated)
        return {"": peers, "pure": peers.replaced(delta=0.0), "owner": peers.replaced(trusted=True)}

    @override
    def membership(self, facts: Facts) -> Membership:
        if self.trusted and facts.parties != 1:
            raise InputError.because(
                f"if `protocol.trusted` is true, one owner has all rows, but {facts.parties}"
                " parties take part; name the owner alone, or leave it out",
                field="parties",
            )
        parameters = self.bind(facts)
        promise = self.promise_of(parameters.plan)
        return Membership(
            release_rows,
            batch_max=_QUERIES_MAX,
            labels=lambda released, queries: released.model.predict(queries),
            public={"parameters": parameters, "adding": self.sum},
            all_learn=True,
            once=Once(
                released_size(parameters),
                partial(write_release, parameters),
                partial(read_release, parameters),
                parameters.plan.trust.tolerated,
                lambda released: ReleasedModel.of(released, parameters, promise),
                self.lost if 2 * self.lost < facts.parties else 0,
            ),
        )

    @override
    def comparisons(self, example: Example) -> tuple[Comparison, ...]:
        """Return the default comparison, and one of rows with a number as the label."""
        usual = super().comparisons(example)
        is_built_in = type(self).own_statistic is Release.own_statistic
        if not (is_built_in and self.delta and self.statistic in {"auto", "ridge"}):
            return usual
        numbers = super().comparisons(example.predicting(COMPARED_TARGET))
        return (*usual, *(replace(each, long="numbers as labels") for each in numbers))

    @override
    def setup(self, parts: Mapping[str, Rows], facts: Facts) -> "ReleaseSetup":
        return ReleaseSetup(self, parts, facts)


class ReleasedSetup(Setup):
    """Parties whose answer is a release: a model made from noisy totals, for all queries.

    Attributes:
        unit: The unit of the guarantee.
    """

    batch_max: ClassVar[int] = _QUERIES_MAX
    unit: ClassVar[str] = "release"
    parameters: ReleaseParameters

    @abstractmethod
    def _parts(self) -> list[Rows]:
        """Return the rows of each party that adds a share of the noise."""

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        return self.release(rng).model.predict(queries)

    @override
    def score(self, queries: Floats, rng: Generator) -> Scored:
        model = self.release(rng).model
        scores = model.best_scores(queries) if isinstance(model, Classifier) else None
        return Scored(model.predict(queries), scores)

    @override
    def noise(self, queries: Floats, answer: Released) -> PlannedNoise:
        """Return the noise of the first sum: what a second one adds up depends on the first."""
        total, noise = answer.totals[0], self.parameters.noises[0]
        statistic = self.parameters.first or self.parameters.main()
        exact = sum(statistic.sum(rows.features, rows.labels) for rows in self._parts())
        return PlannedNoise((total.sums - exact) / noise.deviation(total.shares), noise.kurtosis)

    def release(self, rng: Generator) -> Released:
        """Release the rows in this process, with the parties' own steps."""
        parts = self._parts()
        return simulate_release(parts, self.parameters, rng.spawn(len(parts)))

    @override
    def spent(self, batches: int) -> Spent:
        plan, account = self.parameters.plan, self.parameters.account
        if batches <= 1:
            return Spent(plan.epsilon * batches, plan.delta, batches, self.unit)
        total: Account = account.compose(*[account] * (batches - 1))  # type: ignore[arg-type]  # the others are of the same distribution
        return Spent(total.epsilon(plan.delta), plan.delta, batches, self.unit)


class ReleaseSetup(ReleasedSetup):
    """Parties that are ready to release: peers, or an owner of all rows and a client."""

    def __init__(self, system: Release, parts: Mapping[str, Rows], facts: Facts) -> None:
        super().__init__(system, parts, facts)
        self._release = system
        self.parameters = self._bind(len(parts))
        for rows in parts.values():
            require_ready(rows, self.parameters, self.parameters.plan.trust.parties)

    @property
    @override
    def parties(self) -> tuple[str, ...]:
        return (SERVER, next(iter(self.parts))) if self._release.trusted else tuple(self.parts)

    @property
    @override
    def observers(self) -> tuple[str, ...]:
        return self.parties[1:] if self._release.trusted else super().observers

    @property
    @override
    def resident(self) -> tuple[object, ...]:
        if self._release.trusted:
            return together(self.parts), None
        return tuple(self.parts.values())

    @property
    @override
    def role(self) -> Callable[..., Awaitable[Released]]:
        return release_by_owner if self._release.trusted else release_rows

    @override
    def can_do_with(self, parties: Sequence[str]) -> bool:
        if self._release.trusted:
            return set(parties) == set(self.parties)
        try:
            self._bind(len(parties))
        except InputError:
            return False
        return True

    @override
    def play(
        self, queries: Floats, *, among: Sequence[str] | None = None, ring: Ring | None = None
    ) -> Play:
        parties = self.parties if among is None else tuple(among)
        parameters = self._bind(len(parties))
        cost = self._release.cost(parameters, len(parties))
        roles = {"client": parties[0], "adding": self._release.sum}
        return Play(
            forecast=lambda _run: cost,
            labels=lambda released: released.model.predict(queries),
            learners=parties,
            public={"parameters": parameters, **({} if self._release.trusted else roles)},
            scores=None
            if self.facts.target is not None
            else lambda released: released.model.best_scores(queries),
        )

    @override
    def observe(self, queries: Floats, runs: int, rng: Generator) -> Floats:
        """Draw noisy totals without the observers' own vectors, which they can subtract."""
        own = 0 if self._release.trusted else len(self.observers)
        if self.parameters.first is not None:  # each run's first sum decides what the other adds up
            return np.array([self._draw_unknown(own, rng) for _ in range(runs)])
        statistic, noise = next(release_steps(self.parameters))
        unknown = self._parts()[own:]
        hidden = sum(statistic.sum(rows.features, rows.labels) for rows in unknown)
        every = replace(noise.sensitivity, dimensions=runs * noise.sensitivity.dimensions)
        shares = sum(replace(noise, sensitivity=every).share(rng) for _ in unknown)
        return (hidden + np.reshape(shares, (runs, -1))).astype(np.float64)

    def _draw_unknown(self, own: int, rng: Generator) -> Floats:
        parts = self._parts()
        steps, rngs = release_steps(self.parameters), rng.spawn(len(parts))
        drawn = simulate_draws(steps, parts, self.parameters, rngs)
        return np.concatenate([each[own:].sum(axis=0, dtype=np.float64) for each in drawn])

    @override
    def _parts(self) -> list[Rows]:
        return [together(self.parts)] if self._release.trusted else list(self.parts.values())

    @override
    def model(self, answer: Released, among: Sequence[str], *, seeded: bool) -> ReleasedModel:
        parameters = self._bind(len(among))
        causes = {"seeded noise": SEED_TELLS} if seeded else {}
        promise = self._release.promise_of(parameters.plan).broken_by(causes)
        return ReleasedModel.of(answer, parameters, promise)

    def _bind(self, parties: int) -> ReleaseParameters:
        return self._release.bind(replace(self.facts, parties=parties))
