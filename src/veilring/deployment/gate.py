"""The decisions of a running party by its policy: made, counted, and entered into its trail.

A policy is applied in one place, an `Admission`, before the party joins a session, charges, or
tells others of a request. Counts are kept for each hour in the state file of the party. If an ε is
spent, a request is counted in the transaction that charges the ledger; otherwise in one of its own,
before its session is played. A request that then fails stays counted, as its charge does. The same
transaction enters it into the trail of the party, whose entries of requests are written here.
"""

import datetime as dt
import json
import logging
from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from sqlite3 import Connection
from typing import Final

from typing_extensions import override

from veilring.deployment.connecting import Server
from veilring.deployment.policy import ANY_K, Policy, Request, Usage, decide, in_words, units_of
from veilring.deployment.trail import STORED_SECONDS, TRAIL, Trail
from veilring.errors import (
    BudgetExhausted,
    InternalError,
    PolicyRefused,
    ScenarioError,
    StoreFailed,
    VeilringError,
)
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import Section, StateFile, open_state_file
from veilring.protocols.admission import Admitted, Asked, admit_all
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
MEMBER_USAGE: Final = Section(
    name="record of usage by members",
    version=1,
    schema="""
CREATE TABLE member_usage (
    hour INTEGER NOT NULL, member TEXT NOT NULL, queries INTEGER NOT NULL, units INTEGER NOT NULL,
    PRIMARY KEY (member, hour)
);
""",
    sealed=("member_usage",),
    loss="the limits of each member count from zero again",
)
"""The section that counts the same for each member, once a policy limits one."""
_HOUR: Final = dt.timedelta(hours=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COUNT: Final = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (hour) DO UPDATE SET"
    " queries = queries + excluded.queries, units = units + excluded.units"
)
_COUNT_MEMBER: Final = (
    "INSERT INTO member_usage VALUES (?, ?, ?, ?) ON CONFLICT (member, hour) DO UPDATE SET"
    " queries = queries + excluded.queries, units = units + excluded.units"
)
_SUMS: Final = (
    "SELECT coalesce(sum(iif(hour = ?1, queries, 0)), 0),"
    " coalesce(sum(iif(hour / 24 = ?1 / 24, queries, 0)), 0), coalesce(sum(queries), 0),"
    " coalesce(sum(iif(hour / 24 = ?1 / 24, units, 0)), 0), coalesce(sum(units), 0)"
)
# Kinds of entries of a trail.
_ADMITTED: Final = "admitted"
_ANSWERED: Final = "answered"
_REFUSED: Final = "refused"
_FAILED: Final = "failed"
_CHANGED: Final = "changed"
_POLICY: Final = "policy"


def _hour_of(now: dt.datetime) -> int:
    return (now - _EPOCH) // _HOUR


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
                if policy.members:
                    self.file.add(MEMBER_USAGE)
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
        epsilon = self._terms.epsilon if asked.epsilon is None else asked.epsilon
        request = self._terms._replace(
            client=asked.client,
            queries=asked.queries,
            epsilon=epsilon if asked.queries or epsilon is None else 0.0,
            k=self._terms.k if asked.k is None else asked.k,
            peer=asked.peer,
        )
        admitted = _Admitted(self, asked, request)
        if asked.peer and asked.client not in {"", *self._server.roster.names}:
            # It may have left, or our roster may be the older one. The peer may invent names.
            rule = f"roster: {asked.client} is not in it"
            admitted.refuse(rule, same=(asked.peer, "roster"))
            raise PolicyRefused(self._server.name, "who", rule)
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
        if policy is None or admitted.is_change:
            return
        members = {name: self._usage(now, name) for name in request.members & policy.members.keys()}
        decision = decide(policy, request, self._usage(now), now, members)
        if decision.about:
            admitted.refuse(decision.rule)
            raise PolicyRefused(self._server.name, decision.about, decision.rule)
        self.reserved[admitted] = request.queries, units_of(request.epsilon or 0.0)

    def _usage(self, now: dt.datetime, member: str = "") -> Usage:
        """Return the counted and reserved amounts, of all requests or those of one member."""
        found = f"{_SUMS} FROM member_usage WHERE member = ?2" if member else f"{_SUMS} FROM usage"
        given = (_hour_of(now), *([member] if member else []))
        row = self.file.connection.execute(found, given).fetchone()
        reserved = (
            added for each, added in self.reserved.items() if not member or member in each.members
        )
        queries, units = (sum(each) for each in zip((0, 0), *reserved, strict=True))
        added = (queries, queries, queries, units, units)
        return Usage(*map(sum, zip(row, added, strict=True)))


class _Admitted(Admitted):
    """A request that a gate has admitted, with its entries in the trail."""

    def __init__(self, gate: Gate, asked: Asked, request: Request) -> None:
        self._gate, self._asked, self._request = gate, asked, request
        self._number, self._has_answer, self._session = 0, False, asked.session
        self.members, self.is_change = request.members, asked.records > 0

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
                    hour = _hour_of(gate.clock())
                    transaction.execute(_COUNT, (hour, *added))
                    if gate.policy is not None and gate.policy.members:
                        rows = ((hour, member, *added) for member in self.members)
                        transaction.executemany(_COUNT_MEMBER, rows)
                if trail is not None:
                    entry = self._entry()
                    entry |= {"charged": connection is not None, "peers": list(peers)}
                    kind = _ADMITTED if answer is None else _ANSWERED
                    kind = _CHANGED if self.is_change else kind
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
    def refuse(self, rule: str, same: object = None) -> None:
        trail, asked = self._gate.trail, self._asked
        if trail is None:
            return
        with self._gate.storing():
            if self._number:
                trail.append(_FAILED, {"of": self._number, "error": rule})
            else:
                same = same or (asked.peer, asked.client, rule.partition(":")[0])
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
            "records": asked.records,
            "epsilon": request.epsilon,
        }


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


def _log_change(me: str, policy: Policy, file: StateFile, log: logging.Logger) -> None:
    """Log the policy, or its differences from that of the last start, and keep it."""
    now, row = policy.limits, file.connection.execute("SELECT content FROM policy").fetchone()
    before = now if row is None else json.loads(row[0])
    if before == now:
        said = ", ".join(f"{key} = {in_words(value)}" for key, value in now.items())
        log.info("the policy of %s: %s", me, said or "no limits")
    else:
        keys = [key for key in Policy.model_fields if before.get(key) != now.get(key)]
        changes = (f"{key}: {in_words(before.get(key))} → {in_words(now.get(key))}" for key in keys)
        log.warning("the policy of %s has changed since its last start: %s", me, "; ".join(changes))
    if row is None or before != now:
        with file.transaction() as connection:
            insert = "INSERT OR REPLACE INTO policy VALUES (1, ?)"
            connection.execute(insert, (json.dumps(now, sort_keys=True),))
