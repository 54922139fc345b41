"""Batches of queries that one party distributes to all others."""

from collections.abc import Callable

from veilring.arrays import Floats
from veilring.data.table import in_unit_cube
from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.party import Party, broadcast
from veilring.privacy.checks import require
from veilring.protocols.digests import digest_of
from veilring.transport.messages import Matrix, Message


class Queries(Message, kind="ring.queries"):
    """The queries of a batch, shape (queries, features); they are public to all parties."""

    features: Matrix


def check_queries(queries: Floats, features: int, most: int) -> None:
    """Refuse a batch that cannot be answered, of shape (queries, features)."""
    if queries.shape[1:] != (features,):
        raise InputError.because(
            f"queries has the shape {queries.shape}; it must be (queries, {features})",
            field="queries",
        )
    require(1 <= len(queries) <= most, "queries", len(queries), f"1 to {most} in a batch")
    if not in_unit_cube(queries):
        raise InputError.because("queries must be numbers from 0 to 1", field="queries")


async def hand_out(
    party: Party,
    client: str,
    queries: Floats | None,
    check: Callable[[Floats], None],
    *,
    announced: int | None = None,
    due: int = -2,
) -> Floats:
    """Return the queries of a batch, shape (queries, features): the client sends them to all.

    An `InputError` of `check` ends the session: it is the client's own, or the others accuse it.

    Args:
        announced: The number of queries that the client has announced, if it has.
    """
    if party.me == client:
        if queries is None:
            raise InputError.because(
                f"{client} is the client and needs a batch of queries", field="queries"
            )
        check(queries)
        await broadcast(party, Queries(features=queries))
        return queries
    handed = (await party.receive(Queries, sender=client, due=due)).features
    require_announced(client, len(handed), announced)
    try:
        check(handed)
    except InputError as error:
        raise ProtocolViolation(client, f"sent an invalid request: {error}") from error
    return handed


def require_announced(client: str, handed: int, announced: int | None) -> None:
    """Refuse a batch with another number of queries than its client has announced, if it has."""
    if announced is not None and handed != announced:
        said = f"sent a batch of {handed} queries after it had announced {announced}"
        raise ProtocolViolation(client, said)


def batch_digest(queries: Floats) -> bytes:
    """Return the hash of a batch, shape (queries, features), of 32 bytes."""
    return digest_of(repr(queries.shape).encode(), queries.tobytes())
