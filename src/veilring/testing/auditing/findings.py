"""The subject of an audit, its effort, and its result: a verdict for each claim, with a page."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import tomli_w
from numpy.random import Generator

from veilring.data.table import Features
from veilring.errors import InputError
from veilring.nodes.party import Parties, Party
from veilring.nodes.ring import Ring
from veilring.nodes.run import check_arguments
from veilring.privacy.bounds import ALARM
from veilring.privacy.checks import require
from veilring.protocols.claims import Comparison, Example
from veilring.protocols.promise import Facts, Promise
from veilring.protocols.system import Play, Setup, System
from veilring.testing.exploring.subjects import Invariant, RoleSubject
from veilring.testing.hiding.combining import Arithmetic
from veilring.testing.hiding.features import Strip
from veilring.testing.hiding.leaves import find_leaves, same_leaves
from veilring.testing.hiding.worlds import Role, World, strip_masks

COALITIONS_MAX: Final = 12
"""The coalitions of a full audit: all pairs of five parties. Each takes as long as the first."""
_CLASSES: Final = 2
_PARTIES_MIN: Final = 2


class RoleClaims:
    """A role, and the claims about it that an audit can contradict.

    Attributes:
        role: The coroutine function `role(party, own, **public)`, from the top level of a module.
        inputs: Each party's private input, by its name.
        invariant: Raises an `AssertionError` unless results are right, given the inputs of the
            parties that took part and the results of those that have one, each by name. By
            default, results must equal those without any fault or lie.
        other_inputs: The inputs of a world that the coalition must not distinguish from the first.
        coalition: The members of the coalition, or their number: then every coalition of as many
            parties with equal inputs in both worlds.
        permitted: The information that the protocol may reveal to the coalition, as a function of
            all inputs.
        least: The smallest number of parties that the role needs after others were lost.
        strip: A function that computes more from the members' views and random draws; by default
            it removes pairwise masks.
        moduli: The moduli of shares, masks and products. The audit also guesses: see
            `veilring.testing.hiding.combining`.
        points: The points of polynomials at which parties hold shares, by party; by default each
            party's position, from 1.
        notices_liars: Whether it claims that no malicious party changes a result unnoticed.
        title: The title of the page; by default the name of the role.
        public: The role's public arguments, given as keywords.

    Raises:
        InputError: If the role does not take the public arguments, or `least`, `moduli` or the
            size of a coalition is out of range.
    """

    def __init__(  # noqa: PLR0913  (each is a claim, by name)
        self,
        role: Role,
        inputs: Mapping[str, object],
        invariant: Invariant | None = None,
        *,
        other_inputs: Mapping[str, object] | None = None,
        coalition: tuple[str, ...] | int = (),
        permitted: Callable[[Mapping[str, Any]], object] | None = None,
        least: int = 2,
        strip: Strip = strip_masks,
        moduli: tuple[int, ...] = (),
        points: Mapping[str, int] = MappingProxyType({}),
        notices_liars: bool = False,
        title: str = "",
        **public: Any,
    ) -> None:
        """Refuse claims that no run could satisfy, before anything is run."""
        if not _PARTIES_MIN <= least <= len(inputs):
            raise InputError("least", least, f"{_PARTIES_MIN} to {len(inputs)}")
        if isinstance(coalition, int) and not 0 < coalition < len(inputs):
            raise InputError("coalition", coalition, f"1 to {len(inputs) - 1}")
        check_arguments(role, public, by=RoleClaims)
        Arithmetic(moduli, points)
        self.role, self.inputs, self.invariant = role, inputs, invariant
        self.other_inputs, self.coalition, self.permitted = other_inputs, coalition, permitted
        self.least, self.strip, self.notices_liars = least, strip, notices_liars
        self.moduli, self.points = moduli, points
        self.title, self.public = title, public

    def replaced(self, **changes: Any) -> "RoleClaims":
        """Return the claims with other options or other public arguments."""
        given = dict(vars(self))
        return RoleClaims(**{**given.pop("public"), **given, **changes})

    @property
    def name(self) -> str:
        """The name of the role."""
        return str(getattr(self.role, "__name__", "role"))

    @property
    def arithmetic(self) -> Arithmetic:
        """The declared moduli and points."""
        return Arithmetic(self.moduli, self.points)

    @property
    def coalitions(self) -> tuple[tuple[str, ...], ...]:
        """The coalitions that the claim is about; none without a second world.

        Raises:
            InputError: If too few parties have equal inputs in both worlds.
        """
        if self.other_inputs is None:
            return ()
        if not isinstance(self.coalition, int):
            return (self.coalition,)
        other = self.other_inputs
        equal = [name for name, own in self.inputs.items() if same_leaves(own, other[name])]
        if len(equal) < self.coalition:
            raise InputError.because(
                f"only {len(equal)} parties have equal inputs in both worlds, so that no coalition"
                f" of {self.coalition} can be examined; change the inputs of fewer parties",
                field="other_inputs",
            )
        return tuple(combinations(equal, self.coalition))

    @property
    def explored(self) -> RoleSubject:
        """The role as the subject of an exploration."""
        return RoleSubject(self.role, self.inputs, self.invariant, self.public, self.least)


def sample(coalitions: Sequence[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """Return at most a given number of coalitions, in order; the choice is always the same."""
    order = np.random.default_rng(0).permutation(len(coalitions))
    return [coalitions[place] for place in sorted(order[: max(0, most)].tolist())]


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
        """The public facts of the example."""
        return self._facts(self.example)

    def _facts(self, example: Example) -> Facts:
        """Return the public facts, also of other worlds: numbers are declared, not counted."""
        queries, features = self.example.queries.shape
        schema = Features.of_numbers(features, _CLASSES)
        if example.target is not None:
            schema = replace(schema, classes=(), target=example.target)
        return Facts.of(len(self.example.parts), schema, rows=self.example.rows, queries=queries)

    def setup(self, example: Example | None = None) -> Setup:
        """Return the system, ready to be played on its example or on another one."""
        played = example or self.example
        return self.system.setup(played.parts, self._facts(played))

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
        """The coalitions as large as the observers, these and other neighbours first.

        A party's place may decide what it receives, so each party is in one of them. Of all others,
        as many are drawn as `COALITIONS_MAX` leaves room for. Only the observers are examined, if
        some parties hold no rows: then the promise is about these observers.
        """
        setup = self.setup()
        size, round_ = len(setup.observers), setup.parties * 2
        if setup.observers != round_[:size] or setup.parties != tuple(self.example.parts):
            return (setup.observers,)
        near = [round_[place : place + size] for place in range(len(setup.parties))]
        known = {frozenset(each) for each in near}
        far = [each for each in combinations(setup.parties, size) if frozenset(each) not in known]
        return (*near, *sample(far, COALITIONS_MAX - len(near)))

    def seen_by(self, coalition: Sequence[str]) -> Self:
        """Return the subject with other observers."""
        turned = self.turned
        if tuple(coalition) == turned[0]:
            return replace(self, coalition=())
        require(len(turned) != 1, "coalition", ",".join(coalition), ",".join(turned[0]))
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


@dataclass(frozen=True, slots=True)
class Effort:
    """The size of each part of an audit.

    Attributes:
        runs: The runs of each comparison of two worlds, both together; a multiple of 4.
        drawn: The views of each comparison that a system draws in one process, both worlds
            together; a multiple of 8.
        other_views: Whether the views of parties in other places are also examined, if these may
            differ from the client's.
        coalitions: The number of coalitions that are examined, if a role's claim is about more.
    """

    runs: int
    drawn: int
    worlds: int
    worlds_max: int
    every_message: bool
    other_views: bool
    coalitions: int
    long_views: bool
    alarm: float = ALARM


QUICK: Final = Effort(
    runs=1_600,
    drawn=8_000,
    worlds=20,
    worlds_max=100,
    every_message=False,
    other_views=False,
    coalitions=3,
    long_views=False,
)
"""About 20 s on two idle cores."""
FULL: Final = Effort(
    runs=8_000,
    drawn=60_000,
    worlds=200,
    worlds_max=400,
    every_message=True,
    other_views=True,
    coalitions=COALITIONS_MAX,
    long_views=True,
)
"""Between 16 s and about 6 minutes of CPU time, depending on the system."""


class Verdict(StrEnum):
    """The outcome of an audit for one claim: see `MEANINGS`."""

    HOLDS = "holds"
    LEAKS = "leaks, as stated"
    CONTRADICTED = "contradicted"
    NOT_CLAIMED = "not claimed"
    NOT_TESTED = "not tested"
    BY_ARGUMENT = "by argument"


MEANINGS: Final = {
    Verdict.HOLDS: "The claim was tested, and no run contradicts it.",
    Verdict.LEAKS: "The promise states a leak without a bound. The finding shows its size.",
    Verdict.CONTRADICTED: "A run contradicts the claim.",
    Verdict.NOT_CLAIMED: "The promise does not cover this. The evidence shows what happens.",
    Verdict.NOT_TESTED: "This audit did not test the claim. The finding gives the reason.",
    Verdict.BY_ARGUMENT: "No run of this audit tests the claim. The finding names the proof or"
    " the test that supports it.",
}
"""Each verdict in a sentence."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a promise or a forecast, and the verdict on it.

    Attributes:
        power: The violations that the audit would have found, as sentences; empty if it tested
            nothing.
    """

    claim: str
    promised: str
    verdict: Verdict
    finding: str
    power: str = ""
    evidence: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdicts on all claims of a system or a role."""

    system: str
    title: str
    parameters: Mapping[str, Any]
    seed: int
    quick: bool
    alarm: float
    claims: tuple[Claim, ...]
    seconds: float

    @property
    def contradicted(self) -> tuple[Claim, ...]:
        """The claims that a run contradicts."""
        return self.of(Verdict.CONTRADICTED)

    def of(self, verdict: Verdict) -> tuple[Claim, ...]:
        """Return the claims with a verdict."""
        return tuple(claim for claim in self.claims if claim.verdict is verdict)

    def __getitem__(self, claim: str) -> Claim:
        """Return a claim by its name."""
        for each in self.claims:
            if each.claim == claim:
                return each
        raise KeyError(claim)

    def __str__(self) -> str:
        """Return a line for each claim, with the finding if a run contradicts it."""
        wrong = self.contradicted
        lines = [f"{self.title}: {outcome(self)}"]
        for claim in self.claims:
            finding = f": {claim.finding}" if claim in wrong else ""
            lines.append(f"  {claim.claim:<18} {claim.verdict}{finding}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the audit as a JSON object, with the names of files only."""
        tables = asdict(self)
        for claim in tables["claims"]:
            claim["files"] = list(claim["files"])
        return tables


PAGE_FILE: Final = "audit.html"
NUMBERS_FILE: Final = "audit.json"


def outcome(audit: Audit) -> str:
    """Return the result of an audit in one sentence."""
    wrong = [claim.claim for claim in audit.contradicted]
    number = len(audit.claims)
    verb = "is" if len(wrong) == 1 else "are"
    if wrong:
        return f"{len(wrong)} of {number} claims {verb} contradicted: {', '.join(wrong)}."
    return f"None of the {number} claims is contradicted."


def setting(audit: Audit) -> str:
    """Return a line that describes how the audit was run."""
    kind = "quick audit" if audit.quick else "audit"
    return f"{audit.system}: {kind}, seed {audit.seed}, {audit.seconds:.0f} s"


def render_page(audit: Audit) -> str:
    """Return the page, which is equal for equal audits."""
    from veilring.scenarios.reporting.page import fill  # noqa: PLC0415  (an extra)

    given = {name: value for name, value in audit.parameters.items() if value is not None}
    return fill(
        "audit.html.j2",
        __package__,
        title=f"Audit of {audit.title}",
        setting=setting(audit),
        outcome=outcome(audit),
        counts=[(verdict, len(audit.of(verdict))) for verdict in Verdict],
        meanings=MEANINGS.items(),
        settings=tomli_w.dumps(given),
        audit=audit,
    )


def require_fresh(out: Path) -> None:
    """Refuse a folder that exists, before a run starts."""
    if out.exists():
        raise InputError("--out", out, "a folder that does not exist; nothing is overwritten")


def write_audit(audit: Audit, out: Path) -> None:
    """Write the page, all numbers, and the worlds that fail to a folder."""
    files = {PAGE_FILE: render_page(audit), NUMBERS_FILE: json.dumps(audit.as_json(), indent=2)}
    for claim in audit.claims:
        files |= claim.files
    try:
        out.mkdir(parents=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("--out", out, f"a folder that can be written ({error})") from error
