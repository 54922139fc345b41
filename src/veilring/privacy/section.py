"""Tables of a state file, declared by the system that needs them, without opening any."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from sqlite3 import Connection  # a party without a state file loads no database

PAGE_BYTES: Final = 4096

Step: TypeAlias = Callable[["Connection"], Iterable[str]]
"""Changes the tables of one version into those of the next, within a transaction.

It gives notes for the operator, in sentences. It never calls `executescript`, which
would end the transaction.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables of a state file that belong together.

    Attributes:
        schema: The statements that create the tables. No two sections share a table's name.
        sealed: The tables whose rows are hashed. A table with millions of small rows is better
            checked by its user, many rows at once.
        loss: The consequence of losing the tables: the end of "without it, ...".
        log_bytes_max: The size above which the log is moved into the file.
        steps: The changes from earlier versions, each by the version that it starts from, for
            `veilring.privacy.upgrade`.
    """

    name: str
    version: int
    schema: str
    sealed: tuple[str, ...]
    loss: str
    log_bytes_max: int = 1000 * PAGE_BYTES
    steps: Mapping[int, Step] = field(default_factory=dict, compare=False)
