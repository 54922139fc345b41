"""The checks at the start of a party, by name.

`veilring serve` makes the checks in order and stops at the first error. `veilring check` makes all
of them, and those that serving makes by opening the state and the port. It changes nothing on disk.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Generic, Literal, Self, TypeVar

from typing_extensions import override

from veilring.deployment.config import ServerConfig, StateConfig, Terms
from veilring.deployment.connecting import Server, expiry_warnings
from veilring.deployment.policy import (
    USAGE,
    Gate,
    Policy,
    Request,
    describe_outcome,
    open_admission,
    read_policy,
)
from veilring.deployment.reloading import Marks, marks_of, reload
from veilring.deployment.status import Clock, StatusReport, read_status, utc_now, warn_of_socket
from veilring.deployment.trail import TRAIL, Trail
from veilring.errors import HandshakeError, StoreFailed, VeilringError
from veilring.privacy.files import as_store_failed
from veilring.privacy.statefile import StateFile, require_current, require_unused
from veilring.transport.handshake import ConnectionRefusal
from veilring.transport.listener import bind
from veilring.transport.roster import read_certificate
from veilring.transport.tls import compare_terms

C = TypeVar("C", bound=ServerConfig)
Outcome = Literal["ok", "warning", "failed", "skipped"]
Step = tuple[str, Callable[[], object]]
"""The name of a check, and its function: it returns what it found, logs warnings, or raises."""

# A ledger grows by some kilobytes a day, its log to 4 MB: below the first there is time to clean
# up, below the second a charge may fail.
FREE_BYTES_LOW: Final = 256 << 20
FREE_BYTES_MIN: Final = 8 << 20
_MIB: Final = 1 << 20
# The shortest limit among systems: that of macOS, less its final zero.
SOCKET_BYTES_MAX: Final = 103
# The checks of the key, the roster and the policy, also against the rest of the configuration.
_CHECKED_AGAIN: Final = (
    *("identity", "clock", "policy", "clients", "quotas", "administrators"),
    *("keys", "certificate"),
)
# A state file that is this much younger than the present shows a clock that was set back.
_CLOCK_SLACK: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        found: What was found, and the remedy if it failed.
    """

    name: str
    outcome: Outcome
    found: str


class Start(Generic[C]):
    """The checks at the start of a party, which reads each file once.

    Args:
        log: The log of the party.
    """

    def __init__(self, config: C, log: logging.Logger, clock: Clock = utc_now) -> None:
        self.config, self.log, self._clock = config, log, clock
        self.marks = Marks()

    @cached_property
    def server(self) -> Server:
        """The party's key and roster."""
        return Server(self.config, self.log, self._clock, partial(reload, self))

    @cached_property
    def terms(self) -> Terms:
        """The terms."""
        raise NotImplementedError

    @property
    def greeted(self) -> tuple[str, ...]:
        """The other parties that it connects to."""
        return ()

    @property
    def request(self) -> Request:
        """A request under the terms, by which the policy is checked."""
        raise NotImplementedError

    @cached_property
    def policy(self) -> Policy | None:
        """The party's own policy, if there is one."""
        return read_policy(self.server, self.config.policy, self.request)

    @property
    def keeps_trail(self) -> bool:
        """Whether it keeps a trail: see `veilring.deployment.trail`."""
        return False

    def admission(self, file: StateFile | None = None) -> Gate:
        """Return the admission of requests, which the state file counts and has the trail of."""
        trail = None
        if file is not None and self.keeps_trail:
            with as_store_failed(f"the {TRAIL.name} failed"):
                trail = Trail(file, self.server, self.terms.digest)
        self.log.info("the trail of %s: %s", self.server.name, self._trail())
        self.gate = open_admission(
            self.server, self.policy, self.request, self.log, file=file, trail=trail
        )
        return self.gate

    def files(self) -> Iterator[Step]:
        """Yield the checks of the party's own files, after those of its key and its terms."""
        yield from ()

    def open_copy(self) -> bool:
        """Open a copy of the durable state, with all checks of its opening, and close it.

        Returns:
            Whether the party keeps state.
        """
        return False

    def begin(self) -> None:
        """Make the checks before serving; the first error ends them."""
        self.marks = marks_of(self.config)
        for _, step in self._own():
            step()

    def check_again(self) -> None:
        """Make those checks that depend on what may change while the party runs."""
        for name, step in self._own():
            if name in _CHECKED_AGAIN:
                step()

    def renew(self, fresh: Self) -> Iterator[str]:
        """Use further files that may change while the party runs, and yield what differs.

        Args:
            fresh: A start with the files as they are now, which has made its checks again.
        """
        del fresh
        yield from ()

    def _own(self) -> Iterator[Step]:
        yield "identity", self._identity
        yield "clock", self._clock_is_plausible
        yield "terms", lambda: f"SHA-256 {self.terms.digest.hex()}"
        yield "policy", self._policy
        yield "trail", self._trail
        yield from self.files()
        if self._state_file is not None:
            yield "disk", partial(_disk, self._state_file.parent, self.log)

    def steps(self) -> Iterator[Step]:
        """Yield all checks without the network, in order."""
        yield from self._own()
        yield "certificates", self._certificates
        yield "state", self._state
        yield "port", self._port
        yield "socket", self._socket

    @property
    def _state_file(self) -> Path | None:
        path = Path(getattr(self.config, "state", ""))
        return path if path.is_file() else None

    @cached_property
    def _running(self) -> StatusReport | None:
        """The status of the party itself, if it is running."""
        with contextlib.suppress(TimeoutError):
            return read_status(Path(self.config.socket)) if self.config.socket else None
        return None

    def _identity(self) -> str:
        me = self.server.roster.member(self.server.name)
        ends = self.server.identity.certificate.not_valid_after_utc
        left = (ends - self._clock()).days
        return f"{me.name}, valid until {ends:%Y-%m-%d} (days left: {left})"

    def _policy(self) -> str:
        others = [name for name in self.server.roster.names if name != self.server.name]
        return describe_outcome(self.policy, self.request, others, self._clock())

    def _trail(self) -> str:
        if self.keeps_trail and isinstance(self.config, StateConfig):
            return f"it is kept in {Path(self.config.state).name}"
        if "trail" in type(self.config).model_fields:
            return "none is kept; set `trail = true` to keep one"
        return "none is kept, because no answer depends on private rows"

    def _clock_is_plausible(self) -> str:
        now, server = self._clock(), self.server
        shown = f"the clock shows {now:%Y-%m-%d %H:%M} UTC"
        begins = server.identity.certificate.not_valid_before_utc
        if now < begins:  # no mistake of a file: the time may become right while we are started
            raise VeilringError(
                f"{shown}, which is before the certificate of {server.name} begins"
                f" ({begins:%Y-%m-%d %H:%M}): set the clock, and start again"
            )
        for member in server.roster.members:
            begins = read_certificate(member.certificate)[1].not_valid_before_utc
            if now < begins:
                self.log.warning(
                    "%s, which is before the certificate of %s begins (%s): one of the two clocks"
                    " is wrong",
                    *(shown, member.name, f"{begins:%Y-%m-%d %H:%M}"),
                )
        if self._state_file is not None:
            changed = dt.datetime.fromtimestamp(self._state_file.stat().st_mtime, dt.UTC)
            if changed - now > _CLOCK_SLACK:
                self.log.warning(
                    "%s, but the state was changed on %s: the clock was set back, or is wrong",
                    *(shown, f"{changed:%Y-%m-%d %H:%M}"),
                )
        return shown

    def _certificates(self) -> str:
        members, now = self.server.roster.members, self._clock()
        for warning in expiry_warnings(members, now):
            self.log.log(warning.level, "%s", warning.sentence)
        first = min(members, key=lambda member: member.expires)
        left = f"days left: {first.days_left(now)}"
        return f"of {len(members)} members, that of {first.name} ends first ({left})"

    def _state(self) -> str:
        if self._state_file is not None and self._running is None:
            require_unused(self._state_file)
        is_sound = self.open_copy()
        if self._state_file is not None:
            require_current(self._state_file, USAGE, TRAIL)  # which serving adds
        return "sound" if is_sound else "not needed under these terms"

    def _port(self) -> str:
        port = self.server.roster.member(self.server.name).port
        return self.check_port(self.config.listen, port)

    def check_port(self, host: str, port: int) -> str:
        """Return whether the party can listen, or listens already, at a port.

        Raises:
            AddressTaken: If another process is using it.
        """
        where = f"{host}:{port}"
        if self._running is not None:
            return f"{where}, at which the party is running"
        bind(host, port).close()
        return f"{where} is free"

    def _socket(self) -> str:
        path = Path(self.config.socket)
        if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
            warn_of_socket(path, "the path is too long", self.log)
        elif not os.access(path.parent, os.W_OK):
            warn_of_socket(path, "its folder is missing or read-only", self.log)
        return str(path)

    def run(self, *, peers: bool = False) -> list[Check]:
        """Make all checks.

        Args:
            peers: Whether to compare roster, formats and terms with the other parties.
        """
        steps = list(self.steps())
        if peers:
            steps += [(f"peer {name}", partial(self._peer, name)) for name in self._others]
        done, errors = list[Check](), set[str]()
        for name, step in steps:
            done.append(_made(name, step, self.log, errors))
        return done

    @property
    def _others(self) -> tuple[str, ...]:
        try:
            return self.greeted
        except VeilringError:  # which the check of the identity has reported
            return ()

    @cached_property
    def _refusals(self) -> dict[str, ConnectionRefusal | None]:
        """The refusals of all other parties, which are asked at once."""
        server, terms = self.server, self.terms.keys

        async def ask() -> list[ConnectionRefusal | None]:
            every = (compare_terms(server.identity, server.roster, n, terms) for n in self.greeted)
            return await asyncio.gather(*every)

        return dict(zip(self.greeted, asyncio.run(ask()), strict=True))

    def _peer(self, name: str) -> str:
        refusal = self._refusals[name]
        if refusal is None:
            return "the roster, the formats and the terms are the same"
        if refusal.again:
            self.log.warning("%s did not answer: %s", name, refusal.reason)
            return ""
        raise HandshakeError(name, refusal.reason)


def _disk(folder: Path, log: logging.Logger) -> str:
    free = shutil.disk_usage(folder).free
    shown = f"{free / _MIB:,.0f} MiB are free in {folder}"
    if free < FREE_BYTES_MIN:
        raise StoreFailed(
            f"{shown}; at least {FREE_BYTES_MIN / _MIB:.0f} are needed, so that a charge does not"
            " fail: free some space"
        )
    if free < FREE_BYTES_LOW:
        log.warning("free some space before the disk is full")
    return shown


class _Lines(logging.Handler):
    """Keeps the lines of a log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records = list[logging.LogRecord]()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextlib.contextmanager
def _recorded(log: logging.Logger) -> Iterator[list[logging.LogRecord]]:
    """Record the lines of veilring's logs instead of writing them."""
    ours, lines = logging.getLogger(log.name.partition(".")[0]), _Lines()
    before = ours.level, ours.propagate, ours.handlers
    ours.setLevel(logging.INFO)
    ours.propagate, ours.handlers = False, [lines]
    try:
        yield lines.records
    finally:
        ours.setLevel(before[0])
        ours.propagate, ours.handlers = before[1:]


def _made(name: str, step: Callable[[], object], log: logging.Logger, errors: set[str]) -> Check:
    """Make a check; one that fails with an earlier error depends on that check."""
    with _recorded(log) as records:
        try:
            found = step()
        except (VeilringError, OSError) as error:
            text = "; ".join([str(error), *getattr(error, "__notes__", ())])
            if text in errors:
                return Check(name, "skipped", "it depends on a check that failed")
            errors.add(text)
            return Check(name, "failed", text)
    said = [record.getMessage() for record in records]
    if isinstance(found, str) and found:
        said.append(found)
    warned = any(record.levelno >= logging.WARNING for record in records)
    return Check(name, "warning" if warned else "ok", "; ".join(said))
