"""The policy of a party: which requests it takes part in, by its own file.

The terms say what all parties have agreed on, and clients choose their requests within them. A
policy is one party's own, and only makes this narrower: neither terms nor requests can widen it. A
decision depends on the policy, the request, the counted usage and the time, and never on a row.
`veilring.deployment.gate` makes and counts the decisions of a running party.
"""

import datetime as dt
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, get_args

import tomli_w
from pydantic import AfterValidator, Field

from veilring.config import Section as Table
from veilring.config import read_toml, require_key_that
from veilring.data.cells import Words
from veilring.deployment.config import STATISTICS
from veilring.privacy.budgets import AMOUNT_MAX, from_units, to_units
from veilring.protocols.ranksearch import Reveal
from veilring.protocols.registry import system_names

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_HOURS_TEXT: Final = "two times of day in UTC, such as 07:00-18:30"
_REVEALED: Final[tuple[str, ...]] = get_args(Reveal)  # the most detailed first

ANY_K: Final = sys.maxsize
"""The k of terms under which each request chooses its own."""
_UNCOUNTED: Final = ("clients", "systems", "hours")


def _checked_hours(text: str) -> str:
    if _HOURS.fullmatch(text) is None:
        message = f"hours must be {_HOURS_TEXT}"
        raise ValueError(message)
    return text


_Number = Annotated[int, Field(ge=0)]
_Least = Annotated[int, Field(ge=1)]
_Epsilon = Annotated[float, Field(ge=0, le=AMOUNT_MAX)]


class Amounts(Table):
    """The limits of numbers: of one member, or of all requests together.

    Attributes:
        queries_hour: The maximum number of queries in an hour of the clock.
        queries_day: The maximum number of queries on a day (UTC).
        queries_total: The maximum number of queries for the lifetime of the state.
        epsilon: The maximum ε of a request. With any limit of ε, a system without ε is refused.
        epsilon_day: The maximum ε on a day (UTC).
        epsilon_total: The maximum ε for the lifetime of the state.
    """

    queries_hour: _Number | None = None
    queries_day: _Number | None = None
    queries_total: _Number | None = None
    epsilon: _Epsilon | None = None
    epsilon_day: _Epsilon | None = None
    epsilon_total: _Epsilon | None = None


class _Subjects(Table):
    """The limits of subjects: which clients may ask what.

    Attributes:
        clients: The clients that may ask. A member among others believes the member that was asked
            which client asks.
        systems: The systems that may be used, by name; statistics are `statistics`.
        reveal: The most detailed results that rank search may open.
        k: The minimum number of neighbours; a request without neighbours is then refused.
        parties: The minimum number of parties whose rows make an answer, lost ones left out.
        rows: The minimum public number of rows of all parties together.
    """

    clients: Words | None = Field(None, description="a list of names of the roster")
    systems: Words | None = Field(None, description="a list of names of systems")
    reveal: Reveal | None = None
    k: _Least | None = None
    parties: _Least | None = None
    rows: _Least | None = None


class Policy(Amounts, _Subjects):
    """The policy of one party. A key that is left out sets no limit.

    Attributes:
        hours: The time of day (UTC) at which requests are answered; the end may be on the next day.
        member: The limits of individual members of the roster, by name: each is a table with limits
            of queries and ε. They count the requests of a client, or those that a member passes on.
    """

    hours: Annotated[str, AfterValidator(_checked_hours)] | None = Field(
        None, description=_HOURS_TEXT
    )
    member: Mapping[str, Amounts] | None = Field(
        None, description="a table of names of the roster, each with a table of limits"
    )

    @property
    def members(self) -> Mapping[str, Amounts]:
        """The limits of individual members."""
        return self.member or {}

    def to_toml(self) -> str:
        """Return the text of the file."""
        return tomli_w.dumps(self.limits)

    @property
    def limits(self) -> dict[str, object]:
        """The keys that set a limit, with their values, as they are compared and logged."""
        return self.model_dump(mode="json", exclude_none=True)


class Request(NamedTuple):
    """A request under the terms of a deployment.

    Attributes:
        client: The client; empty for the terms alone, or if the members act for all clients.
        system: The name of the system.
        reveal: The results that the system opens; none if it has no such choice.
        k: The number of neighbours; none for a radius, or for a system without neighbours.
        parties: The number of parties whose rows make the answer.
        rows: The public number of rows; none if it is not public.
        queries: The number of new queries.
        epsilon: The ε that it spends; none if no ε bounds what it reveals.
        counted: Whether the party counts requests: one that only collects or searches does not.
        peer: The member that asks for the client, or for all; empty if the client asks itself.
    """

    client: str
    system: str
    reveal: str | None = None
    k: int | None = None
    parties: int = 1
    rows: int | None = None
    queries: int = 0
    epsilon: float | None = None
    counted: bool = True
    peer: str = ""

    @property
    def members(self) -> frozenset[str]:
        """The client and the member that asks for it, as far as there are any."""
        return frozenset({self.client, self.peer} - {""})


class Usage(NamedTuple):
    """What was counted, with what is reserved: queries, and units of ε (10⁻¹²)."""

    queries_hour: int = 0
    queries_day: int = 0
    queries_total: int = 0
    units_day: int = 0
    units_total: int = 0


class Decision(NamedTuple):
    """The decision on a request.

    Attributes:
        about: The subject of the rule that refuses it, for others: `who`, `what`, `when` or
            `amount`; empty if the request is allowed.
        rule: The exact reason, for the party's own log.
    """

    about: str = ""
    rule: str = ""


def decide(
    policy: Policy,
    request: Request,
    usage: Usage,
    now: dt.datetime,
    members: Mapping[str, Usage] = MappingProxyType({}),
) -> Decision:
    """Return whether a policy allows a request, by its first rule that does not.

    Args:
        usage: The usage by all requests.
        now: The time, with its zone.
        members: The usage by the requests of each member.
    """
    if policy.clients is not None and request.client not in {"", *policy.clients}:
        allowed = ", ".join(policy.clients) or "nobody"
        return Decision("who", f"clients: {request.client} is not among {allowed}")
    decision = decide_terms(policy, request)
    if decision.about:
        return decision
    if policy.hours is not None and not _is_open(policy.hours, now):
        rule = f"hours: it is {now.astimezone(dt.UTC):%H:%M}, outside of {policy.hours} (UTC)"
        return Decision("when", rule)
    for name in sorted(request.members & policy.members.keys()):
        used = members.get(name, Usage())
        decision = _decide_amount(policy.members[name], request, used, f"member.{name}.")
        if decision.about:
            return decision
    return _decide_amount(policy, request, usage)


def decide_terms(policy: Policy, request: Request) -> Decision:
    """Return whether a policy allows the terms of a request, for any client at any time."""
    amounts = (policy, *(each for name, each in policy.members.items() if name in request.members))
    spends = any(getattr(each, key) is not None for each in amounts for key in _EPSILONS)
    revealed = _REVEALED if policy.reveal is None else _REVEALED[_REVEALED.index(policy.reveal) :]
    tests = {
        "systems": policy.systems is None or request.system in policy.systems,
        "reveal": policy.reveal is None or request.reveal in {None, *revealed},
        "k": policy.k is None or (request.k or 0) >= policy.k,
        "parties": policy.parties is None or request.parties >= policy.parties,
        "rows": policy.rows is None or (request.rows or 0) >= policy.rows,
        "epsilon": not spends or request.epsilon is not None,
    }
    for key, holds in tests.items():
        if not holds:
            has = in_words(getattr(request, "system" if key == "systems" else key))
            limit = f"the policy says {in_words(getattr(policy, key))}"
            if key == "epsilon":
                has, limit = f"no ε bounds {request.system}", "the policy limits ε"
            return Decision("what", f"{key}: {has}; {limit}")
    return Decision()


_EPSILONS: Final = ("epsilon", "epsilon_day", "epsilon_total")


def _decide_amount(policy: Amounts, request: Request, usage: Usage, where: str = "") -> Decision:
    """Return whether the limits of numbers allow a request that adds to them.

    Args:
        where: The table of the limits, for the rule that refuses.
    """
    for key in ("queries_hour", "queries_day", "queries_total"):
        limit, used = getattr(policy, key), getattr(usage, key)
        if request.queries and limit is not None and used + request.queries > limit:
            asked = f"and {request.queries:,} are asked"
            rule = f"{where}{key}: {used:,} of {limit:,} are used, {asked}"
            return Decision("amount", rule)
    units = units_of(request.epsilon or 0.0)
    for key, spent in zip(_EPSILONS, (0, usage.units_day, usage.units_total), strict=True):
        limit = getattr(policy, key)
        if units and limit is not None and spent + units > units_of(limit):
            used = f"{float(from_units(spent)):.12g} of {limit:.12g} is spent"
            rule = f"{where}{key}: {used}, and {request.epsilon:.12g} is asked"
            return Decision("amount", rule)
    return Decision()


def in_words(value: object) -> str:
    """Return the value of a key for a log."""
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def units_of(epsilon: float) -> int:
    """Return the units (10⁻¹²) of an ε."""
    return int(to_units(epsilon, field="epsilon"))


def _is_open(hours: str, now: dt.datetime) -> bool:
    """Return whether a time is within hours; equal ends are a whole day."""
    start, end = (dt.time.fromisoformat(part) for part in hours.split("-"))
    time = now.astimezone(dt.UTC).time()
    if start < end:
        return start <= time < end
    return time >= start or time < end


def read_policy(path: str, terms: Request, names: Sequence[str]) -> Policy | None:
    """Return the policy of a configuration; none if it names none.

    Args:
        path: The path of its file; empty for none.
        terms: A request under the terms.
        names: The names of the roster.

    Raises:
        ScenarioError: If the file is wrong, or does not allow any request under these terms.
    """
    if not path:
        return None
    policy = read_toml(Path(path), Policy, "policy")
    _require_names("clients", policy.clients, names)
    _require_names("member", tuple(policy.members), names)
    _require_names("systems", policy.systems, (*system_names(), STATISTICS))
    if not terms.counted:
        counted = [key for key in policy.limits if key not in _UNCOUNTED]
        message = f"this party counts no queries; allowed: {', '.join(_UNCOUNTED)}"
        require_key_that(not counted, f"policy.{', '.join(counted)}", message)
    decision = decide_terms(policy, terms)
    decision = decision if decision.about else _decide_amount(policy, terms, Usage())
    message = f"it refuses every request under these terms: {decision.rule}"
    require_key_that(not decision.about, "policy", message)
    return policy


def describe_outcome(
    policy: Policy | None, terms: Request, names: Sequence[str], now: dt.datetime
) -> str:
    """Return in words who may ask what now, by the policy and the terms together."""
    asked = [terms.system]
    if terms.reveal is not None:
        asked.append(terms.reveal)
    if terms.k not in {None, ANY_K}:
        asked.append(f"k = {terms.k}")
    if terms.epsilon is not None:
        asked.append(f"ε = {terms.epsilon:g} each")
    if policy is None:
        shown = ", ".join(asked)
        return f"none: every member of the roster may ask {shown}, as far as the terms allow"
    refused = {
        name: decision.rule
        for name in names
        if (decision := decide(policy, terms._replace(client=name, queries=1), Usage(), now)).about
    }
    allowed = [name for name in names if name not in refused]
    said = [f"{', '.join(allowed) or 'nobody'} may ask {', '.join([*asked, *_amounts(policy)])}"]
    own = {name: _amounts(each) for name, each in policy.members.items() if name not in refused}
    said += [f"{name} at most {', '.join(limits)}" for name, limits in own.items() if limits]
    return "; ".join([*said, *(f"{name} is refused: {rule}" for name, rule in refused.items())])


def _amounts(limits: Amounts) -> list[str]:
    """Return the limits of numbers that are set, in words."""
    values = ((key, getattr(limits, key)) for key in Amounts.model_fields)
    return [f"{key} = {in_words(value)}" for key, value in values if value is not None]


def _require_names(key: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    unknown = [name for name in names or () if name not in known]
    message = f"there is no {', '.join(unknown)}; allowed: {', '.join(known)}"
    require_key_that(not unknown, f"policy.{key}", message)
