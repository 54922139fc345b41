"""`veilring ask`: the client of a deployed ring."""

from pathlib import Path

import numpy as np

from veilring.deployment.config import ClientConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.terms import load_terms
from veilring.protocols.ring.member import ask_ring
from veilring.randomness import Streams

__all__ = ("ask",)


async def ask(config: ClientConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a CSV file labelled by the ring.

    A batch costs as many messages as one query; it has as many as the terms and a message allow.

    Args:
        config: Who asks whom.
        queries: The file; it has the columns of the terms.

    Returns:
        The class of each row, by name, in order: the column `label`.

    Raises:
        ScenarioError: If a file does not fit.
        HandshakeError: If the member cannot be reached.
        VeilringError: If the ring could not answer.
    """
    identity, roster = load_credentials(config)
    terms = load_terms(Path(config.terms), len(roster.parties))
    features = terms.read_queries(queries)
    require_party(roster, "ask", config.ask)
    size = min(terms.protocol.batch, terms.parameters.queries_max)
    role = ask_ring(terms.digest)
    labels = np.zeros(len(features), dtype=np.int64)
    async with connected(identity, roster, config.ask) as (node, pair):
        for first in range(0, len(features), size):
            batch = slice(first, first + size)
            session = Streams().token("session")
            labels[batch] = await node.run(role, session, pair, features[batch])
    return {"label": [terms.classes[label] for label in labels]}
