"""The status of a running party, which it tells over a local Unix socket.

The socket is beside the state file, and only the party's own user can connect to it. Each
connection gets one JSON object: names, counts, days and budgets, never rows, queries or labels.
"""

import asyncio
import contextlib
import datetime as dt
import json
import os
import socket
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, fields
from importlib.metadata import version
from logging import Logger
from pathlib import Path
from typing import Any, Final, TypedDict

from veilring.errors import InputError
from veilring.nodes.service import Service
from veilring.privacy.ledger import AnalystTotal, Totals
from veilring.transport.pacing import loop_time
from veilring.transport.tls import TlsEndpoint

# A probe of Kubernetes waits for one second by default; a party that computes answers a bit later.
STATUS_SECONDS: Final = 5.0
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
RELOADING: Final = "RELOADING=1\nMONOTONIC_USEC={}"
"""Messages to systemd: see `sd_notify(3)`."""
_SOCKET_MODE: Final = 0o600
_CONNECTIONS: Final = "connection"
_CHUNK: Final = 1 << 16
_DECIMALS: Final = 3  # of seconds

Clock = Callable[[], dt.datetime]
ReadTotals = Callable[[], Totals]
ReadReports = Callable[[], dict[str, int]]


class Sessions(TypedDict):
    """The sessions that peers have opened: those that failed by the name of the error."""

    running: int
    finished: int
    failed: dict[str, int]


class StatusReport(TypedDict):
    """The status of a party.

    Attributes:
        waiting_for: The parties that are not connected, with their addresses and the reasons.
        uptime: In seconds.
        refusals: The number of refused requests by their reason, and of refused connections.
        certificate_days: The whole days until each member's certificate ends; of the party itself,
            of the certificate that it uses.
        previous_key_days: The days for which the previous key of a member is still accepted.
        next_key: Whether the party's next key lies beside the present one: see `veilring keys
            renew`.
        budget: The `Totals` of its ledger, with what is left; none if it has none.
        reports: The number of an aggregator's reports in each state; `verified` ones wait for a
            batch. None for other parties.
        reload_error: The mistake because of which the last reload has changed nothing, or nothing.
        last_error: The last failed session, and how many seconds ago it ended.
    """

    party: str
    role: str
    version: str
    ready: bool
    waiting_for: dict[str, str]
    uptime: float
    sessions: Sessions
    refusals: dict[str, int]
    certificate_days: dict[str, int]
    previous_key_days: dict[str, int]
    next_key: bool
    reload_error: str
    budget: dict[str, Any] | None
    reports: dict[str, int] | None
    last_error: tuple[float, str] | None


class Status:
    """The status of a party that listens.

    Args:
        totals: Returns the totals of its ledger, if it has one.
        has_next_key: Returns whether its next key lies beside the present one.
        reports: Returns the number of its reports in each state, if it has any.

    Attributes:
        service: The service that answers requests, once it does.
        reload_error: The mistake because of which the last reload has changed nothing.
    """

    def __init__(
        self,
        role: str,
        endpoint: TlsEndpoint,
        totals: ReadTotals | None,
        clock: Clock,
        has_next_key: Callable[[], bool],
        *,
        reports: ReadReports | None = None,
    ) -> None:
        self._reports = reports
        self._role, self._endpoint, self._has_next_key = role, endpoint, has_next_key
        self._totals, self._clock, self._since = totals, clock, loop_time()
        self._told_ready, self.reload_error = False, ""
        self.service: Service | None = None

    def tell_ready(self) -> None:
        """Tell systemd that the party is ready."""
        self._told_ready = True
        notify_systemd(READY)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Tell systemd that the party reads its files again, and then that it is ready again."""
        if self._told_ready:
            notify_systemd(RELOADING.format(time.monotonic_ns() // 1_000))
        try:
            yield
        finally:
            if self._told_ready:
                notify_systemd(READY)

    async def report(self) -> StatusReport:
        """Return the present status."""
        budget = reports = None
        with contextlib.suppress(InputError, sqlite3.Error):  # it is closed, or its disk fails
            if self._totals is not None:
                budget = _budget(await asyncio.to_thread(self._totals))  # a charge may hold it
            if self._reports is not None:
                reports = await asyncio.to_thread(self._reports)
        now, absent = self._clock(), self._endpoint.absent()
        members = self._endpoint.roster.members
        own = {self._endpoint.name: (self._endpoint.expires - now).days}
        counts = None if self.service is None else self.service.counts
        refusals = {_CONNECTIONS: self._endpoint.refused} if self._endpoint.refused else {}
        error = None if counts is None else counts.last_error
        return StatusReport(
            party=self._endpoint.name,
            role=self._role,
            version=version("veilring"),
            ready=self.service is not None and not absent,
            waiting_for=absent,
            uptime=round(loop_time() - self._since, _DECIMALS),
            sessions=Sessions(
                running=counts.running if counts else 0,
                finished=counts.finished if counts else 0,
                failed=dict(counts.failed) if counts else {},
            ),
            refusals={**(counts.refused if counts else {}), **refusals},
            certificate_days={each.name: each.days_left(now) for each in members} | own,
            previous_key_days={
                each.name: (each.previous_until - now.date()).days
                for each in members
                if each.previous_until and each.accepts_previous(now.date())
            },
            next_key=self._has_next_key(),
            reload_error=self.reload_error,
            budget=budget,
            reports=reports,
            last_error=None
            if error is None
            else (round(loop_time() - error[0], _DECIMALS), error[1]),
        )

    @asynccontextmanager
    async def served(self, path: str, log: Logger) -> AsyncIterator[None]:
        """Answer at a Unix socket until the context is left.

        A party works without it: if the socket cannot be made, the log has a warning.

        Args:
            path: The path of the socket; empty for none.
        """
        listening = _bound(Path(path), log) if path and hasattr(socket, "AF_UNIX") else None
        if listening is None:
            yield
            return
        server = await asyncio.start_unix_server(self._answer, sock=listening)
        try:
            yield
        finally:
            server.close()
            Path(path).unlink(missing_ok=True)  # noqa: ASYNC240  (it takes microseconds)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the other side has gone
            writer.write(json.dumps(await self.report()).encode())
            await writer.drain()
        writer.close()


def _budget(totals: Totals) -> dict[str, Any]:
    clients = [{**asdict(each), "left": totals.left_for(each)} for each in totals.analysts]
    return {**asdict(totals), "left": totals.left, "analysts": clients}


def totals_of(budget: Mapping[str, Any]) -> Totals:
    """Return the totals in a status."""
    keys = [field.name for field in fields(AnalystTotal)]
    clients = tuple(AnalystTotal(**{key: each[key] for key in keys}) for each in budget["analysts"])
    given = {field.name: budget[field.name] for field in fields(Totals)}
    return Totals(**given | {"analysts": clients})


def _bound(path: Path, log: Logger) -> socket.socket | None:
    """Return a listening socket that only this user can connect to; replace a stale one."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        listening.bind(str(path))
        path.chmod(_SOCKET_MODE)  # nobody can connect before it listens
        listening.listen()
    except OSError as error:
        listening.close()
        warn_of_socket(path, error.strerror or str(error), log)
        return None
    return listening


def warn_of_socket(path: Path, why: str, log: Logger) -> None:
    """Log that a party has no socket."""
    log.warning(
        "there is no socket for `veilring status` at %s: %s. Set `socket` in the configuration to a"
        " short path in a folder that this user can write",
        *(path, why),
    )


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(f"{path} is another file")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
        raise FileExistsError("another party uses it")
    except ConnectionRefusedError:  # its party was killed
        path.unlink()
    except FileNotFoundError:
        return


def read_status(path: Path, seconds: float = STATUS_SECONDS) -> StatusReport | None:
    """Return the status of the party at a socket, or none if no party runs there.

    Raises:
        InputError: If the socket belongs to another user.
        TimeoutError: If the party does not answer within the given time.
    """
    if not hasattr(socket, "AF_UNIX"):
        return None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            text = b"".join(iter(lambda: connection.recv(_CHUNK), b""))
    except TimeoutError:
        raise
    except PermissionError as error:
        raise InputError("socket", path, "the socket of a party of this user") from error
    except OSError:  # missing, stale, or impossible
        return None
    found: StatusReport | None = json.loads(text) if text else None
    return found


def notify_systemd(state: str) -> None:
    """Tell systemd the state of a unit of the type `notify`; without one, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name in Linux's abstract namespace
        address = f"\0{address[1:]}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
