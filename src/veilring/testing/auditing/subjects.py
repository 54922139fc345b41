"""Subjects of audits: a system on its example, and a role with its inputs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Final, Self

from numpy.random import Generator

from veilring.data.table import Features
from veilring.errors import InputError
from veilring.nodes.party import Parties, Party
from veilring.nodes.ring import Ring
from veilring.protocols.claims import Comparison, Example
from veilring.protocols.promise import Facts, Promise
from veilring.protocols.system import Play, Setup, System
from veilring.testing.exploring.subjects import Invariant, RoleSubject
from veilring.testing.hiding.features import Strip
from veilring.testing.hiding.leaves import find_leaves
from veilring.testing.hiding.worlds import Role, World, strip_masks

_CLASSES: Final = 2
_PARTIES_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class RoleClaims:
    """A role, and the claims about it that an audit can contradict.

    Attributes:
        role: The coroutine function `role(party, own, **public)`, from the top level of a module.
        inputs: Each party's private input, by its name.
        invariant: Raises an `AssertionError` unless results are right, given the inputs of the
            parties that took part and the results of those that have one, each by name.
        other_inputs: The inputs of a world that the coalition must not distinguish from the first.
        coalition: The members of the coalition.
        permitted: The information that the protocol may reveal to the coalition, as a function of
            all inputs.
        public: The role's public arguments.
        least: The smallest number of parties that the role needs after others were lost.
        strip: A function that computes more from the members' views and random draws; by default
            it removes pairwise masks.
        notices_liars: Whether it claims that no malicious party changes a result unnoticed.
        title: The title of the page; by default the name of the role.

    Raises:
        InputError: If the role does not take the public arguments, or `least` is out of range.
    """

    role: Role
    inputs: Mapping[str, object]
    invariant: Invariant
    other_inputs: Mapping[str, object] | None = None
    coalition: tuple[str, ...] = ()
    permitted: Callable[[Mapping[str, Any]], object] | None = None
    public: Mapping[str, Any] = field(default_factory=dict)
    least: int = 2
    strip: Strip = strip_masks
    notices_liars: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        """Refuse claims that no run could satisfy, before anything is run."""
        if not _PARTIES_MIN <= self.least <= len(self.inputs):
            raise InputError("least", self.least, f"{_PARTIES_MIN} to {len(self.inputs)}")
        try:
            signature(self.role).bind(Party, None, **self.public)
        except TypeError as error:
            raise InputError.because(
                f"{self.name} cannot be called as {self.name}(party, own, **public): {error}",
                field="public",
            ) from None

    @property
    def name(self) -> str:
        """The name of the role."""
        return str(getattr(self.role, "__name__", "role"))

    @property
    def explored(self) -> RoleSubject:
        """The role as the subject of an exploration."""
        return RoleSubject(self.role, self.inputs, self.invariant, self.public, self.least)


@dataclass(frozen=True, slots=True)
class Given:
    """The private input of a party, and the arguments that only this party takes."""

    own: object
    only: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AuditedSystem:
    """A system on its example.

    Attributes:
        coalition: The parties that observe instead of the system's own observers, of whom the
            first is the client. They hold the rows of the example's first parties.
    """

    system: System
    example: Example
    coalition: tuple[str, ...] = ()

    @property
    def promise(self) -> Promise:
        """The promise among the parties of the example."""
        return self.system.promise(parties=len(self.example.parts))

    @property
    def facts(self) -> Facts:
        """The public facts, the same in all worlds: the numbers are declared, not counted."""
        queries, features = self.example.queries.shape
        return Facts(
            parties=len(self.example.parts),
            features=features,
            classes=_CLASSES,
            rows=self.example.rows,
            queries=queries,
            schema=Features.of_numbers(features, _CLASSES),
        )

    def setup(self, example: Example | None = None) -> Setup:
        """Return the system, ready to be played on its example or on another one."""
        return self.system.setup((example or self.example).parts, self.facts)

    @property
    def observers(self) -> tuple[str, ...]:
        """The parties whose pooled views are examined."""
        return self.coalition or self.setup().observers

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The system's comparisons, with rows for the coalition's places."""
        compared = self.system.comparisons(self.example)
        if not self.coalition:
            return compared
        return tuple(
            replace(
                each, one=each.one.led_by(self.coalition), other=each.other.led_by(self.coalition)
            )
            for each in compared
        )

    @property
    def turned(self) -> tuple[tuple[str, ...], ...]:
        """The coalitions of neighbours that are as large as the observers, these first.

        A party's place may decide what it receives, so each party is in one of them. Only the
        observers are, if some parties hold no rows: then the promise is about these observers.
        """
        setup = self.setup()
        size, round_ = len(setup.observers), setup.parties * 2
        if setup.observers != round_[:size] or setup.parties != tuple(self.example.parts):
            return (setup.observers,)
        return tuple(round_[place : place + size] for place in range(len(setup.parties)))

    def seen_by(self, coalition: Sequence[str]) -> Self:
        """Return the subject with other observers."""
        turned = self.turned
        if tuple(coalition) == turned[0]:
            return replace(self, coalition=())
        if len(turned) == 1:
            raise InputError("coalition", ",".join(coalition), ",".join(turned[0]))
        most, names = len(turned[0]), tuple(self.example.parts)
        if not (set(coalition) <= set(names) and 0 < len(set(coalition)) == len(coalition) <= most):
            allowed = f"up to {most} of {', '.join(names)}, separated by commas"
            raise InputError("coalition", ",".join(coalition), allowed)
        return replace(self, coalition=tuple(coalition))

    def world(self, example: Example) -> World:
        """Return the world in which observers see a batch of an example."""
        setup = self.setup(example)
        # Drawing a ring takes more messages than everything else, and all parties learn it.
        ring = Ring(setup.parties) if self.system.draws_ring else None
        play = setup.play(example.queries, ring=ring)

        def draw(_rng: Generator) -> Sequence[object]:
            own = zip(setup.parties, setup.resident, strict=True)
            return [Given(each, play.only.get(party, {})) for party, each in own]

        return World(
            role=_Seen(setup.role, play, self.observers[0]),
            inputs=draw,
            parties=Parties(setup.parties),
            coalition=self.observers,
            public=play.public,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The role of a system, with results that an audit can read."""

    role: Callable[..., Awaitable[Any]]
    play: Play
    observer: str

    async def __call__(self, party: Party, given: Given, **public: Any) -> object:
        result = await self.role(party, given.own, **public, **given.only)
        labels = self.play.labels(result) if party.me in self.play.learners else None
        if party.me != self.observer:
            return labels
        try:
            return labels, {path: leaf.values for path, leaf in find_leaves(result)}
        except InputError:
            return labels
