"""The policy of a party: which requests it takes part in, by its own file.

The terms say what all parties have agreed on, and clients choose their requests within them. A
policy is one party's own, and only makes this narrower: neither terms nor requests can widen it. It
is applied in one place, an `Admission`, before the party joins a session, charges, or tells others
of a request. A decision depends on the policy, the request, the counted usage and the time, and
never on a row.

Counts are kept for each hour in the state file of the party. If an ε is spent, a request is counted
in the transaction that charges the ledger; otherwise in one of its own, before its session is
played. A request that then fails stays counted, as its charge does. The same transaction enters it
into the trail of the party, whose entries of requests are written here.
"""

import datetime as dt
import json
import logging
import re
import sys
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from sqlite3 import Connection
from typing import Annotated, Final, NamedTuple, get_args

import tomli_w
from pydantic import AfterValidator, Field
from typing_extensions import override

from veilring.config import Section as Table
from veilring.config import read_toml, require_key_that
from veilring.data.cells import Words
from veilring.deployment.config import STATISTICS, VERIFIED_SUM
from veilring.deployment.connecting import Server
from veilring.deployment.trail import STORED_SECONDS, TRAIL, Trail
from veilring.errors import (
    BudgetExhausted,
    InternalError,
    PolicyRefused,
    ScenarioError,
    StoreFailed,
    VeilringError,
)
from veilring.privacy.budgets import AMOUNT_MAX, from_units, to_units
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import Section, StateFile, open_state_file
from veilring.protocols.admission import Admitted, Asked, admit_all
from veilring.protocols.ranksearch.parameters import Reveal
from veilring.protocols.registry import system_names
from veilring.protocols.requests import charging

USAGE: Final = Section(
    name="record of usage",
    version=1,
    schema="""
CREATE TABLE policy (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE usage (
    hour INTEGER PRIMARY KEY, queries INTEGER NOT NULL, units INTEGER NOT NULL
);
""",
    sealed=("policy", "usage"),
    loss="the limits of its policy count from zero again",
)
"""The section of a state file that counts what a policy limits."""
_HOUR: Final = dt.timedelta(hours=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_HOURS_TEXT: Final = "two times of day in UTC, such as 07:00-18:30"
_REVEALED: Final[tuple[str, ...]] = get_args(Reveal)  # the most detailed first


def _checked_hours(text: str) -> str:
    if _HOURS.fullmatch(text) is None:
        message = f"hours must be {_HOURS_TEXT}"
        raise ValueError(message)
    return text


_Number = Annotated[int, Field(ge=0)]
_Least = Annotated[int, Field(ge=1)]
_Epsilon = Annotated[float, Field(ge=0, le=AMOUNT_MAX)]


class Policy(Table):
    """The policy of one party. A key that is left out sets no limit.

    Attributes:
        clients: The clients that may ask. A member among others believes the member that was asked
            which client asks.
        systems: The systems that may be used, by name; statistics are `statistics`.
        reveal: The most detailed results that rank search may open.
        k: The minimum number of neighbours; a request without neighbours is then refused.
        parties: The minimum number of parties whose rows make an answer, lost ones left out.
        rows: The minimum public number of rows of all parties together.
        queries_hour: The maximum number of queries in an hour of the clock, of all clients.
        queries_day: The maximum number of queries on a day (UTC), of all clients.
        queries_total: The maximum number of queries for the lifetime of the state.
        epsilon: The maximum ε of a request. With any limit of ε, a system without ε is refused.
        epsilon_day: The maximum ε on a day (UTC), of all clients.
        epsilon_total: The maximum ε for the lifetime of the state.
        hours: The time of day (UTC) at which requests are answered; the end may be on the next day.
    """

    clients: Words | None = Field(None, description="a list of names of the roster")
    systems: Words | None = Field(None, description="a list of names of systems")
    reveal: Reveal | None = None
    k: _Least | None = None
    parties: _Least | None = None
    rows: _Least | None = None
    queries_hour: _Number | None = None
    queries_day: _Number | None = None
    queries_total: _Number | None = None
    epsilon: _Epsilon | None = None
    epsilon_day: _Epsilon | None = None
    epsilon_total: _Epsilon | None = None
    hours: Annotated[str, AfterValidator(_checked_hours)] | None = Field(
        None, description=_HOURS_TEXT
    )

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


def decide(policy: Policy, request: Request, usage: Usage, now: dt.datetime) -> Decision:
    """Return whether a policy allows a request, by its first rule that does not.

    Args:
        now: The time, with its zone.
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
    return _decide_amount(policy, request, usage)


def decide_terms(policy: Policy, request: Request) -> Decision:
    """Return whether a policy allows the terms of a request, for any client at any time."""
    spends = any(getattr(policy, key) is not None for key in _EPSILONS)
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
            has = _said(getattr(request, "system" if key == "systems" else key))
            limit = f"the policy says {_said(getattr(policy, key))}"
            if key == "epsilon":
                has, limit = f"no ε bounds {request.system}", "the policy limits ε"
            return Decision("what", f"{key}: {has}; {limit}")
    return Decision()


_EPSILONS: Final = ("epsilon", "epsilon_day", "epsilon_total")


def _decide_amount(policy: Policy, request: Request, usage: Usage) -> Decision:
    """Return whether the limits of numbers allow a request that adds to them."""
    for key in ("queries_hour", "queries_day", "queries_total"):
        limit, used = getattr(policy, key), getattr(usage, key)
        if request.queries and limit is not None and used + request.queries > limit:
            rule = f"{key}: {used:,} of {limit:,} are used, and {request.queries:,} are asked"
            return Decision("amount", rule)
    units = _units(request.epsilon or 0.0)
    for key, spent in zip(_EPSILONS, (0, usage.units_day, usage.units_total), strict=True):
        limit = getattr(policy, key)
        if units and limit is not None and spent + units > _units(limit):
            used = f"{float(from_units(spent)):.12g} of {limit:.12g} is spent"
            rule = f"{key}: {used}, and {request.epsilon:.12g} is asked"
            return Decision("amount", rule)
    return Decision()


def _said(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def _units(epsilon: float) -> int:
    return int(to_units(epsilon, field="epsilon"))


def _is_open(hours: str, now: dt.datetime) -> bool:
    """Return whether a time is within hours; equal ends are a whole day."""
    start, end = (dt.time.fromisoformat(part) for part in hours.split("-"))
    time = now.astimezone(dt.UTC).time()
    if start < end:
        return start <= time < end
    return time >= start or time < end


def _hour_of(now: dt.datetime) -> int:
    return (now - _EPOCH) // _HOUR


_COUNT: Final = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (hour) DO UPDATE SET"
    " queries = queries + excluded.queries, units = units + excluded.units"
)
_READ: Final = (
    "SELECT coalesce(sum(iif(hour = ?1, queries, 0)), 0),"
    " coalesce(sum(iif(hour / 24 = ?1 / 24, queries, 0)), 0), coalesce(sum(queries), 0),"
    " coalesce(sum(iif(hour / 24 = ?1 / 24, units, 0)), 0), coalesce(sum(units), 0) FROM usage"
)
# Kinds of entries of a trail.
_ADMITTED: Final = "admitted"
_ANSWERED: Final = "answered"
_REFUSED: Final = "refused"
_FAILED: Final = "failed"
_POLICY: Final = "policy"


class Gate:
    """The `Admission` of a running party by its policy, which may change.

    It has the requests that it has admitted and not yet counted.

    Attributes:
        policy: The policy; without one, it admits what the terms allow.
        trail: The trail, if the party keeps one.
    """

    def __init__(
        self,
        server: Server,
        terms: Request,
        log: logging.Logger,
        file: StateFile | None,
        trail: Trail | None,
    ) -> None:
        self._server, self._terms, self._log, self.clock = server, terms, log, server.clock
        counts_nothing = file is None and not terms.counted
        self._opened = open_state_file(None, USAGE) if counts_nothing else file
        self.policy: Policy | None = None
        self.trail = trail
        self.reserved = dict["_Admitted", tuple[int, int]]()

    @property
    def file(self) -> StateFile:
        """The state file with the counts and the trail."""
        if self._opened is None:
            message = "this party has no state to count in: run `veilring state new` and restart it"
            raise ScenarioError.because(message, field="policy")
        return self._opened

    def change(self, policy: Policy | None) -> None:
        """Use a policy, or none, for the requests from now on; log how it differs, and enter it."""
        if policy is None:
            line = "%s has no policy: it takes part in everything that the terms allow"
            self._log.info(line, self._server.name)
        else:
            with self.file.guard, self.storing():
                self.file.add(USAGE)
                _log_change(self._server.name, policy, self.file, self._log)
        if self.trail is not None:
            with self.storing():
                self.trail.append(_POLICY, {"policy": policy and policy.limits})
        self.policy = policy

    def renew_key(self) -> None:
        """Enter another key of the party in its trail, if it keeps one."""
        if self.trail is not None:
            with self.storing():
                self.trail.renew_key()

    @contextmanager
    def __call__(self, asked: Asked) -> Iterator[Admitted]:
        """Admit a request, as an `Admission` does."""
        if self.policy is None and self.trail is None:
            with admit_all(asked) as free:
                yield free
            return
        if asked.peer and asked.client not in {"", *self._server.roster.names}:
            # It may have left, or our roster may be the older one.
            raise PolicyRefused(self._server.name, "who", f"{asked.client} is not in the roster")
        epsilon = self._terms.epsilon if asked.epsilon is None else asked.epsilon
        request = self._terms._replace(
            client=asked.client,
            queries=asked.queries,
            epsilon=epsilon if asked.queries or epsilon is None else 0.0,
            k=self._terms.k if asked.k is None else asked.k,
        )
        admitted = _Admitted(self, asked, request)
        with self.file.guard, self.storing():
            self._decide(admitted, request)
        try:
            yield admitted
        except BaseException as error:
            admitted.fail(error)
            raise
        finally:
            with self.file.guard:
                self.reserved.pop(admitted, None)

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Report a failure of the disk."""
        name = TRAIL.name if self.policy is None else USAGE.name
        with charging(), as_store_failed(f"the {name} failed"):
            yield

    def _decide(self, admitted: "_Admitted", request: Request) -> None:
        """Reserve what a request uses, or refuse it."""
        policy, now = self.policy, self.clock()  # the policy may change meanwhile
        if policy is None:
            return
        decision = decide(policy, request, self._usage(now), now)
        if decision.about:
            admitted.refuse(decision.rule)
            raise PolicyRefused(self._server.name, decision.about, decision.rule)
        self.reserved[admitted] = request.queries, _units(request.epsilon or 0.0)

    def _usage(self, now: dt.datetime) -> Usage:
        row = self.file.connection.execute(_READ, (_hour_of(now),)).fetchone()
        queries, units = (sum(each) for each in zip((0, 0), *self.reserved.values(), strict=True))
        added = (queries, queries, queries, units, units)
        return Usage(*map(sum, zip(row, added, strict=True)))


class _Admitted(Admitted):
    """A request that a gate has admitted, with its entries in the trail."""

    def __init__(self, gate: Gate, asked: Asked, request: Request) -> None:
        self._gate, self._asked, self._request = gate, asked, request
        self._number, self._has_answer, self._session = 0, False, asked.session

    @override
    def count(
        self,
        connection: Connection | None = None,
        *,
        session: bytes = b"",
        peers: Iterable[str] = (),
        answer: bytes | None = None,
    ) -> None:
        gate, trail = self._gate, self._gate.trail
        self._session = session or self._session
        with gate.file.guard:
            added = gate.reserved.pop(self, (0, 0))
            if not any(added) and trail is None:
                return
            own = gate.file.transaction() if connection is None else nullcontext(connection)
            with gate.storing(), own as transaction:
                if any(added):
                    transaction.execute(_COUNT, (_hour_of(gate.clock()), *added))
                if trail is not None:
                    entry = self._entry()
                    entry |= {"charged": connection is not None, "peers": list(peers)}
                    kind = _ADMITTED if answer is None else _ANSWERED
                    self._number = trail.append(kind, entry, answer=answer, connection=transaction)
        self._has_answer = answer is not None

    @override
    def answer(self, answer: bytes, connection: Connection | None = None) -> None:
        trail = self._gate.trail
        if trail is None or self._has_answer:
            return
        asked, entry = self._asked, self._entry() | {"of": self._number}
        with self._gate.storing():
            if self._number:
                trail.append(_ANSWERED, entry, answer=answer, connection=connection)
            else:
                same, entry["stored"] = (asked.peer, asked.client, entry["request"]), True
                trail.append_once(same, _ANSWERED, entry, answer=answer, seconds=STORED_SECONDS)
        self._has_answer = True

    @override
    def refuse(self, rule: str) -> None:
        trail, asked = self._gate.trail, self._asked
        if trail is None:
            return
        with self._gate.storing():
            if self._number:
                trail.append(_FAILED, {"of": self._number, "error": rule})
            else:
                same = (asked.peer, asked.client, rule.partition(":")[0])
                trail.append_once(same, _REFUSED, self._entry() | {"rule": rule})

    def fail(self, error: BaseException) -> None:
        """Enter the error of a request that was counted, or the lack of a budget."""
        if isinstance(error, BudgetExhausted) and not self._number:
            self.refuse(f"budget: {error.budget}")
        elif self._gate.trail is not None and self._number and not isinstance(error, StoreFailed):
            plain = VeilringError | CancelledError  # the name of another one could depend on a row
            what = type(error) if isinstance(error, plain) else InternalError
            with self._gate.storing():
                entry = {"of": self._number, "error": what.__name__}
                self._gate.trail.append(_FAILED, entry)

    def _entry(self) -> dict[str, object]:
        """Return the fields of each entry of the request."""
        asked, request, trail = self._asked, self._request, self._gate.trail
        return {
            "request": asked.request and trail and trail.name_request(asked.request),
            "client": asked.client,
            "peer": asked.peer,
            "service": asked.service,
            "session": self._session.hex(),
            "system": request.system,
            "reveal": request.reveal,
            "k": None if request.k == ANY_K else request.k,
            "queries": request.queries,
            "epsilon": request.epsilon,
        }


def read_policy(server: Server, path: str, terms: Request) -> Policy | None:
    """Return the policy of a configuration; none if it names none.

    Args:
        terms: A request under the terms.

    Raises:
        ScenarioError: If the file is wrong, or does not allow any request under these terms.
    """
    if not path:
        return None
    policy = read_toml(Path(path), Policy, "policy")
    _require_names("clients", policy.clients, server.roster.names)
    _require_names("systems", policy.systems, (*system_names(), STATISTICS, VERIFIED_SUM))
    if not terms.counted:
        counted = [key for key in policy.limits if key not in _UNCOUNTED]
        message = f"this party counts no queries; allowed: {', '.join(_UNCOUNTED)}"
        require_key_that(not counted, f"policy.{', '.join(counted)}", message)
    decision = decide_terms(policy, terms)
    decision = decision if decision.about else _decide_amount(policy, terms, Usage())
    message = f"it refuses every request under these terms: {decision.rule}"
    require_key_that(not decision.about, "policy", message)
    return policy


def open_admission(
    server: Server,
    policy: Policy | None,
    terms: Request,
    log: logging.Logger,
    *,
    file: StateFile | None = None,
    trail: Trail | None = None,
) -> Gate:
    """Return the admission of a party by its policy.

    Args:
        terms: A request under the terms.
        file: The open state file, which counts the requests; none for a party that counts none.
        trail: The trail in this file, if the party keeps one.
    """
    gate = Gate(server, terms, log, file, trail)
    gate.change(policy)
    return gate


ANY_K: Final = sys.maxsize
"""The k of terms under which each request chooses its own."""
_UNCOUNTED: Final = ("clients", "systems", "hours")


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
        if (decision := decide(policy, terms._replace(client=name), Usage(), now)).about
    }
    allowed = [name for name in names if name not in refused]
    amounts = [
        f"{key} = {_said(value)}"
        for key, value in policy.limits.items()
        if key.startswith(("queries_", "epsilon"))
    ]
    said = f"{', '.join(allowed) or 'nobody'} may ask {', '.join([*asked, *amounts])}"
    return "; ".join([said, *(f"{name} is refused: {rule}" for name, rule in refused.items())])


def _require_names(key: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    unknown = [name for name in names or () if name not in known]
    message = f"there is no {', '.join(unknown)}; allowed: {', '.join(known)}"
    require_key_that(not unknown, f"policy.{key}", message)


def _log_change(me: str, policy: Policy, file: StateFile, log: logging.Logger) -> None:
    """Log the policy, or its differences from that of the last start, and keep it."""
    now, row = policy.limits, file.connection.execute("SELECT content FROM policy").fetchone()
    before = now if row is None else json.loads(row[0])
    if before == now:
        said = ", ".join(f"{key} = {_said(value)}" for key, value in now.items())
        log.info("the policy of %s: %s", me, said or "no limits")
    else:
        keys = [key for key in Policy.model_fields if before.get(key) != now.get(key)]
        changes = (f"{key}: {_said(before.get(key))} → {_said(now.get(key))}" for key in keys)
        log.warning("the policy of %s has changed since its last start: %s", me, "; ".join(changes))
    if row is None or before != now:
        with file.transaction() as connection:
            insert = "INSERT OR REPLACE INTO policy VALUES (1, ?)"
            connection.execute(insert, (json.dumps(now, sort_keys=True),))
