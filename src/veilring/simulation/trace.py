"""What happened when, as one hash: two runs that agree did the same at the same instants."""

import asyncio
import contextvars
import hashlib
import struct
from collections.abc import Callable
from typing import Any

from simpy import Environment
from typing_extensions import TypeVarTuple, Unpack, override

from veilring.simulation.clock import SimulatedLoop

_Ts = TypeVarTuple("_Ts")


class Trace:
    """A running hash (BLAKE2b) over `(time, what)`.

    Args:
        keep: Whether to keep the entries too, to find where two runs part.

    Attributes:
        count: How many entries were recorded.
        entries: The entries `(seconds, what)`, if kept.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.count = 0
        self.entries: list[tuple[float, str]] = []
        self._keep = keep
        self._hash = hashlib.blake2b(digest_size=16)

    def record(self, seconds: float, what: str) -> None:
        """Add an entry; the time counts to the last bit."""
        self.count += 1
        text = what.encode()
        self._hash.update(struct.pack("<dI", seconds, len(text)) + text)
        if self._keep:
            self.entries.append((seconds, what))

    @property
    def digest(self) -> str:
        """The hash of all entries so far, 32 hexadecimal digits."""
        return self._hash.hexdigest()


class TracedLoop(SimulatedLoop):
    """A simulated loop that records each event of SimPy and each callback made ready.

    Args:
        environment: As for `SimulatedLoop`.
        trace: Where to record; programs may add entries of their own.
    """

    def __init__(self, environment: Environment | None = None, *, trace: Trace) -> None:
        self.trace = trace
        super().__init__(environment)

    @override
    def _step(self) -> None:
        super()._step()
        self.trace.record(self.environment.now, "event")

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self.trace.record(self.environment.now, _describe(callback))
        return super().call_soon(callback, *args, context=context)


def _describe(callback: Callable[..., Any]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))
