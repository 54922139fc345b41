"""`veilring ask` for a querier: rows, labelled by a prediction server."""

import logging
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.prediction_files import read_queries
from veilring.deployment.prediction_terms import load_prediction_terms
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.errors import InputError, ScenarioError
from veilring.protocols.prediction.querier import ask_server
from veilring.randomness import Streams

__all__ = ("QuerierConfig", "query")


_log = logging.getLogger("veilring.querier")


class QuerierConfig(TermsConfig):
    """A querier that has rows labelled by a prediction server.

    Attributes:
        role: `querier`.
        ask: The server, which sees the queries.
        block: How many are sent at once; as many as the terms allow unless it says otherwise.
        outside_max: The share of a column's values in a file of queries that may lie outside of its
            public range. With more the client does not ask.
        name: Another name has the same queries answered once more, drawn and paid anew.
    """

    role: Literal["querier"] = Field(description="querier")
    ask: str = Field(description="the name of a party of the roster")
    block: int = Field(0, ge=0, description="a whole number of at least 1, or 0 for the largest")
    outside_max: OutsideMax = OUTSIDE_MAX
    name: str = Field("", description="a text, or nothing")


async def query(config: QuerierConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a file labelled, block by block.

    A block's key follows from its content: the same command again, after whatever went wrong, gets
    the same labels and spends nothing for those that were answered.

    Args:
        config: Who asks whom.
        queries: The file, as the terms say.

    Returns:
        The class of each row, by name, in order: the column `label`.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If a row does not fit.
        BudgetExhausted: If the stream has fewer queries left.
        HandshakeError: If the server cannot be reached.
        VeilringError: If the server could not answer.
    """
    identity, roster = load_credentials(config)
    terms = load_prediction_terms(Path(config.terms))
    rows, rules = read_queries(queries, terms, config.outside_max, _log), terms.rules
    if config.block > rules.fitting:
        raise ScenarioError("block", config.block, f"at most {rules.fitting}")
    require_party(roster, "ask", config.ask)
    if not len(rows):
        raise InputError("queries", "none", "a file with at least one row")
    block, role = config.block or rules.fitting, ask_server(terms.digest)
    labels = np.zeros(len(rows), np.int64)
    async with connected(identity, roster, config.ask) as (node, pair):
        # A session for each block, so that no stream is too long for one.
        for first in range(0, len(rows), block):
            part, session = slice(first, first + block), Streams().token("session")
            labels[part] = await node.run(
                role, session, pair, rows[part], rules=rules, block=block, name=config.name
            )
    return {"label": [terms.classes[label] for label in labels]}
