"""`veilring ask`: the client of a deployed ring, whatever the ring has agreed to run."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilring.config import has_table
from veilring.deployment.config import ClientConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.schema import Schema
from veilring.deployment.terms import load_terms
from veilring.deployment.votes_terms import load_votes_terms
from veilring.protocols.noisyvotes.member import ask_votes
from veilring.protocols.ring.member import ask_ring
from veilring.randomness import Streams

_log = logging.getLogger("veilring.client")

_Role = Callable[..., Awaitable[NDArray[np.int64]]]


async def ask(config: ClientConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a CSV file labelled by the ring.

    A batch costs as many messages as one query; it has as many as the terms and a message allow.
    Where votes are noisy, each batch costs its epsilon, or nothing if the member that is asked has
    its labels.

    Args:
        config: Who asks whom.
        queries: The file; it has the columns of the terms.

    Returns:
        The class of each row, by name, in order: the column `label`.

    Raises:
        ScenarioError: If a file does not fit.
        HandshakeError: If the member cannot be reached.
        BudgetExhausted: If a member's budget does not suffice.
        VeilringError: If the ring could not answer.
    """
    identity, roster = load_credentials(config)
    terms, size, role = _agreed(Path(config.terms), len(roster.parties))
    features = terms.read_own_queries(queries, config.outside_max, _log)
    require_party(roster, "ask", config.ask)
    labels = np.zeros(len(features), dtype=np.int64)
    async with connected(identity, roster, config.ask, limits=config.limits, terms=terms.keys) as (
        node,
        pair,
    ):
        for first in range(0, len(features), size):
            batch = slice(first, first + size)
            session = Streams().token("session")
            labels[batch] = await node.run(role, session, pair, features[batch])
    return {"label": [terms.classes[label] for label in labels]}


def _agreed(path: Path, parties: int) -> tuple[Schema, int, _Role]:
    """Return the terms, how many queries are asked at once, and what the client plays."""
    if has_table(path, "votes"):
        votes = load_votes_terms(path, parties)
        return votes, votes.batch, ask_votes(votes.digest, votes.parameters)
    terms = load_terms(path, parties)
    size = min(terms.protocol.batch, terms.parameters.queries_max)
    return terms, size, ask_ring(terms.digest)
