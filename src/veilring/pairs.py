"""Values that both parties of a pair compute alike, such as the secret of two keys.

A simulation plays both parties in one process. There the one that comes second takes the value of
the first, and no value is kept for a third: simulated ends cost half of the computation.
"""

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Final

# A value that nobody takes belongs to a pair of which one was lost. Values of this size, this many,
# are 16 MiB.
_KEPT_MAX: Final = 4096
_KEPT_BYTES_MAX: Final = 4096

SHARED: Final[ContextVar[dict[Hashable, bytes] | None]] = ContextVar("SHARED", default=None)
"""The values that a simulated party shares with the others of its process; none elsewhere."""


def of_pair(name: Hashable, compute: Callable[[], bytes]) -> bytes:
    """Return a value, computed at the first party of a pair if both are simulated here.

    Args:
        name: Everything that the value depends on, equal at both parties.
    """
    shared = SHARED.get()
    if shared is None:
        return compute()
    value = shared.pop(name, None)
    if value is None:
        value = compute()
        if len(value) <= _KEPT_BYTES_MAX:
            if len(shared) == _KEPT_MAX:
                shared.clear()
            shared[name] = value
    return value
