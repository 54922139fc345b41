"""A running party reads its files again: on SIGHUP, under `veilring serve`.

These are its roster, its key and certificate, its policy and the level of its log; and the keys and
the certificate that an aggregator has for clients. They are checked as at the start, and then
replaced in one step of the event loop: no request sees some of them old and some new. A mistake
changes nothing. Everything else is read only at the start.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilring.config import require_key_that
from veilring.deployment.config import Config, ServerConfig
from veilring.deployment.duties import start_of
from veilring.errors import StoreFailed, VeilringError
from veilring.transport.roster import Identity, Member, Roster
from veilring.transport.tls import TlsEndpoint

if TYPE_CHECKING:
    from veilring.deployment.start import Start

# The keys of a configuration that may change while its party runs, and the files that they name.
_RELOADED: Final = (
    *("identity", "roster", "policy", "log_level"),
    *("keys", "certificate", "certificate_key"),
)
# Files that are read only at the start. One that is the state is written all the time.
_READ_ONCE: Final = ("terms", "rows", "reading")
_STATE: Final = "state"
Marks = dict[str, tuple[int, ...]]
"""Numbers that differ if a file was written or replaced, by its key."""


class Reloads:
    """Requests to a party that runs in this context to read its files again.

    Args:
        read: Reads its configuration.

    Attributes:
        requested: Set to request it.
    """

    current: ContextVar["Reloads | None"] = ContextVar("reloads", default=None)

    def __init__(self, read: Callable[[], Config]) -> None:
        self.read, self.requested = read, asyncio.Event()


def marks_of(config: ServerConfig) -> Marks:
    """Return the marks of the files that are read only at the start."""
    found = Marks()
    for key in (*_READ_ONCE, _STATE):
        path = Path(getattr(config, key, ""))
        if path.is_file():
            stat = path.stat()
            written = () if key == _STATE else (stat.st_mtime_ns, stat.st_size)
            found[key] = (stat.st_ino, *written)
    return found


async def reload(start: "Start[Any]", reloads: Reloads, endpoint: TlsEndpoint) -> str:
    """Read the files of a running party again, and use and log the changes.

    Returns:
        The mistake because of which nothing has changed; empty otherwise.
    """
    name, log = endpoint.name, start.log
    ours = logging.getLogger("veilring")
    try:
        fresh, switch = await asyncio.to_thread(_prepared, start, reloads, endpoint)
        changes = list(_changes(start, fresh))
        if fresh.policy != start.gate.policy:
            start.gate.change(fresh.policy)  # which may fail, and logs the difference
            changes.append("policy")
        changes += start.renew(fresh)
        switch()
    except (VeilringError, OSError, ValueError, TypeError) as error:  # of any file of a person
        line = "%s has read its files again, and changes nothing: %s"
        log.log(logging.ERROR, line, name, error)  # a mistake in a file, without a trace
        return str(error)
    levels = [getattr(logging, each.config.log_level.upper()) for each in (start, fresh)]
    was, start.config = start.server.identity, fresh.config
    start.server.identity, start.server.roster = fresh.server.identity, fresh.server.roster
    ours.setLevel(min(levels))
    log.info("%s has read its files again: %s", name, "; ".join(changes) or "none has changed")
    ours.setLevel(levels[1])
    if was.fingerprint != fresh.server.identity.fingerprint:
        try:
            start.gate.renew_key()
        except StoreFailed as error:  # its state is closed, so the party ends at the next request
            log.log(logging.ERROR, "the key of %s is not in its trail: %s", name, error)
    return ""


def _prepared(
    start: "Start[Any]", reloads: Reloads, endpoint: TlsEndpoint
) -> "tuple[Start[Any], Callable[[], None]]":
    """Return the start with the files as they are now, and the step that uses its key and roster.

    Raises:
        VeilringError: If a file has a mistake.
    """
    read = reloads.read()
    message = f"{start.server.name} must be restarted to change it"
    require_key_that(type(read) is type(start.config), "role", message)
    fixed = {
        key: getattr(start.config, key) for key in type(read).model_fields if key not in _RELOADED
    }
    differing = [key for key, value in fixed.items() if value != getattr(read, key)]
    fresh = start_of(read.model_copy(update=fixed))
    fresh.terms = start.terms
    fresh.check_again()
    before, after = (each.server.roster.member(endpoint.name) for each in (start, fresh))
    if before.port != after.port:
        differing.append("the port in the roster")
    marks = marks_of(start.config)
    differing += [f"the file {key}" for key in marks if marks[key] != start.marks.get(key)]
    if differing:
        line = "%s has other values of %s, which are read only at the start: restart it to use them"
        start.log.warning(line, endpoint.name, ", ".join(differing))
    return fresh, endpoint.renewal(fresh.server.identity, fresh.server.roster)


def _changes(start: "Start[Any]", fresh: "Start[Any]") -> Iterator[str]:
    """Yield in words what differs in its key, its roster and the level of its log."""
    was, now = start.server.identity, fresh.server.identity
    if was.certificate != now.certificate:
        yield _other_key(was, now)
    yield from _other_members(start.server.roster, fresh.server.roster)
    levels = start.config.log_level, fresh.config.log_level
    if levels[0] != levels[1]:
        yield f"log level {levels[0]} → {levels[1]}"


def _other_key(was: Identity, now: Identity) -> str:
    ends = f"valid until {now.certificate.not_valid_after_utc:%Y-%m-%d}"
    if was.fingerprint == now.fingerprint:
        return f"its certificate is another one, {ends}"
    return f"its key is now {now.fingerprint}, {ends}"


def _other_members(before: Roster, after: Roster) -> Iterator[str]:
    """Yield what differs between two rosters with the same parties."""
    for name in before.names:
        if name not in after.names:
            yield f"{name} has left the roster"
    for member in after.members:
        if member.name not in before.names:
            yield f"{member.name} is new in the roster"
        else:
            yield from _other_member(before.member(member.name), member)


def _other_member(was: Member, now: Member) -> Iterator[str]:
    if was.fingerprint != now.fingerprint:
        yield f"{now.name} has the key {now.fingerprint} in the roster"
    if was.previous_fingerprint != now.previous_fingerprint or (
        was.previous_until != now.previous_until
    ):
        until = f"accepted until {now.previous_until}" if now.previous else "no longer accepted"
        yield f"the previous key of {now.name} is {until}"
    if (was.host, was.port) != (now.host, now.port):
        yield f"{now.name} is at {now.host}:{now.port}"
