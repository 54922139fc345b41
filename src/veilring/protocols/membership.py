"""The part of a party in a deployment in which all parties hold rows.

A system describes this part by a `Membership`. Long-lived members run it: the members of
`veilring.protocols.peers`, or of `veilring.protocols.once` if one result answers all queries.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from numpy.typing import ArrayLike, NDArray

from veilring.arrays import Floats, Ints
from veilring.data.frames import Frame
from veilring.data.table import Rows, Table
from veilring.privacy.section import Section

RowsLike: TypeAlias = Table | Frame | ArrayLike | Path | str
"""Rows in the units of a schema: a table, a data frame, an array, or the path of a CSV file."""


class PublicModel(Protocol):
    """A model released by a run, which anyone may use for any number of queries."""

    def predict(self, rows: RowsLike) -> NDArray[Any]:
        """Return the name of the class of each row, or the predicted number, shape (rows,)."""

    def save(self, path: Path | str) -> None:
        """Write the model to a new file."""


def rows_alone(rows: Rows) -> object:
    """Keep only the rows from batch to batch."""
    return rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Once:
    """How to keep a result that answers all queries: parties that have it never make it again.

    Attributes:
        size: The number of bytes of a result.
        write: A function that returns a result as that many bytes, with all the public values that
            they depend on.
        read: A function that returns the result of such bytes. It raises an `InputError` if they
            are invalid, or have other parameters.
        tolerated: The number of parties that may lie about having a result: one that more parties
            have was made by all.
        model: A function that returns the public model of a result, if the system has one.
        spare: The number of parties without which the others may make the result: fewer than half,
            so that no two sets of parties make one each.
    """

    size: int
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    tolerated: int
    model: Callable[[Any], PublicModel] | None = None
    spare: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Membership:
    """The functions and arguments of a party in a deployment where all parties hold rows.

    One party asks, for itself or for a client, and the others join it.

    Attributes:
        role: The coroutine function that all of them play, from the top level of a module: ``await
            role(party, rows, client=name, queries=array, **public)``. Only the client gets queries,
            of shape (queries, features); for others they default to none, and with `once` no party
            gets any. If an ε is spent, the role also gets ``charge``, which it must call with one
            argument after all parties have agreed to take part and before this one sends anything
            that depends on its rows. If that call raises an error, nothing more may be sent.
        batch_max: The maximum number of queries in one batch.
        labels: A function that returns the class numbers of the queries, shape (queries,), from the
            result of the party that asked; with `once` it also gets the queries.
        scores: A function that returns the score of each class, shape (queries, classes), from the
            same arguments; none if only labels are revealed.
        public: The other arguments of the role, equal for all parties.
        all_learn: Whether all parties learn the labels, not only the one that asked.
        check: A function that raises an `InputError` for queries that the role would refuse
            although they are numbers from 0 to 1, of the right shape and at most `batch_max`.
        keep: A function, called once, from a party's rows to the value that it keeps from batch to
            batch and passes to the role. With `memory` it also gets that file.
        memory: The section of the state file in which a party remembers what its earlier processes
            have done; none if it need not.
        announced: Whether the role accepts `announced`: the number of queries that the client has
            announced. The others then refuse another number before they send anything.
        once: How to keep the result, if one result answers all queries; if none, each batch is
            asked separately.
    """

    role: Callable[..., Awaitable[Any]]
    batch_max: int
    labels: Callable[..., Ints]
    public: Mapping[str, Any] = field(default_factory=dict)
    all_learn: bool = False
    check: Callable[[Floats], None] | None = None
    keep: Callable[..., object] = rows_alone
    memory: Section | None = None
    once: Once | None = None
    scores: Callable[..., Floats] | None = None
    announced: bool = False
