"""The rows of a party of rank search, and its memory of the queries that it took part in.

A deployed party keeps this memory in a file, because its parties change only when it restarts with
another roster. The file contains hashes of queries, which all parties have read, and names.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.errors import AskedBefore
from veilring.nodes.party import Parties
from veilring.privacy.files import as_store_failed
from veilring.privacy.section import Section
from veilring.protocols.digests import digests_of_each
from veilring.reached import sometimes

if TYPE_CHECKING:  # a party without a state file loads no database
    from sqlite3 import Connection

    from veilring.privacy.statefile import StateFile

# Each is a hash, about 155 bytes in an ordered dictionary: 40 MB. A party that forgets the oldest
# queries no longer notices when they are asked again with other parties.
REMEMBERED_MAX: Final = 2**18

_WHAT: Final = "the memory of queries failed"
_SCHEMA: Final = """
CREATE TABLE parties (number INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE searched (
    place INTEGER PRIMARY KEY, query BLOB NOT NULL UNIQUE, parties INTEGER NOT NULL
) STRICT;
"""
QUERIES: Final = Section(
    name="memory of queries",
    version=1,
    schema=_SCHEMA,
    sealed=("parties", "searched"),
    loss="queries can be repeated among other parties, which reveals rows",
)


@dataclass(slots=True, repr=False, eq=False)
class SearchedRows:
    """A party's rows, and its memory of the parties with which each query was searched.

    Repeating a query without one party opens totals whose difference is that party's count, even
    with another k, because the first thresholds are the same. No party can know whether the others
    have opened a total, so it refuses once it has sent a value of its own. The queries of a batch
    with a failed check are refused among any parties, because a malicious one could repeat them to
    learn how much it can falsify before a check fails. Slightly altered queries cannot be detected.

    A process forgets them at its end, unless it has a file of the kind `QUERIES`.

    Attributes:
        file: The file of its memory, if it has one.
    """

    rows: Rows
    file: "StateFile | None" = None
    _searched: OrderedDict[bytes, frozenset[str]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.file is not None:
            self._searched.update(_read(self.file.connection))

    def refuse(self, keys: Sequence[bytes], parties: Parties) -> None:
        """Reject queries for which this party has sent values among others, or that failed a check.

        Queries are given by `keys_of`. `AskedBefore` names the parties that differ.
        """
        here = frozenset(parties)
        before = (self._searched.get(key, here) for key in keys)
        others = [members for members in before if members != here]
        sometimes("a party refuses queries that were searched among other parties", bool(others))
        if others:
            among = [members for members in others if members]
            differing = here.union(*among) - here.intersection(*among)
            raise AskedBefore(len(others), tuple(sorted(differing)))

    def remember(self, keys: Sequence[bytes], parties: Parties) -> None:
        """Remember that values for these queries are about to be sent; if it fails, none may be."""
        self._keep(keys, frozenset(parties))

    def distrust(self, keys: Sequence[bytes]) -> None:
        """Remember queries of a batch with a failed check; see `refuse`."""
        self._keep(keys, frozenset())

    def _keep(self, keys: Sequence[bytes], here: frozenset[str]) -> None:
        latest = next(reversed(self._searched.values()), here)
        members = latest if latest == here else here  # one shared object for many queries
        if self.file is not None:
            with as_store_failed(_WHAT), self.file.transaction() as database:
                _write(database, keys, members)
        for key in keys:
            self._searched[key] = members
            self._searched.move_to_end(key)
        while len(self._searched) > REMEMBERED_MAX:
            self._searched.popitem(last=False)


def keys_of(queries: Floats) -> list[bytes]:
    """Return the key of each query, shape (Q, features); -0.0 has the key of 0."""
    return digests_of_each((queries + 0.0).tobytes(), queries[0].nbytes) if len(queries) else []


def _read(database: "Connection") -> Iterator[tuple[bytes, frozenset[str]]]:
    """Yield the queries and their parties, the oldest first."""
    found = database.execute("SELECT number, names FROM parties")
    members = {number: frozenset(names.split()) for number, names in found}
    for query, number in database.execute("SELECT query, parties FROM searched ORDER BY place"):
        yield query, members[number]


def _write(database: "Connection", keys: Sequence[bytes], members: frozenset[str]) -> None:
    """Write queries as the newest ones, and delete the oldest above the limit."""
    names = " ".join(sorted(members))  # names of a roster contain no spaces
    database.execute("INSERT INTO parties (names) VALUES (?) ON CONFLICT DO NOTHING", (names,))
    ((number,),) = database.execute("SELECT number FROM parties WHERE names = ?", (names,))
    # A replaced row would skip the trigger that takes it out of the seal.
    database.executemany("DELETE FROM searched WHERE query = ?", [(key,) for key in keys])
    unique = dict.fromkeys(keys)
    database.executemany(
        "INSERT INTO searched (query, parties) VALUES (?, ?)", [(key, number) for key in unique]
    )
    ((rows,),) = database.execute("SELECT COUNT(*) FROM searched")
    database.execute(
        "DELETE FROM searched WHERE place IN (SELECT place FROM searched ORDER BY place LIMIT ?)",
        (max(0, rows - REMEMBERED_MAX),),
    )
