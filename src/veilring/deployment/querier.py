"""`veilring ask` for a querier: rows, labelled by a prediction server."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.prediction_files import read_queries
from veilring.deployment.prediction_terms import load_prediction_terms
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.errors import BudgetExhausted, InputError, ScenarioError, VeilringError
from veilring.protocols.prediction.querier import label_session, make_request, status_session
from veilring.protocols.prediction.rules import ServerRules
from veilring.randomness import Streams

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


class Unfinished(VeilringError):
    """Raised when the stream has no room for all queries, and the first of them have labels.

    Attributes:
        labels: The classes of the first rows, by name, in order.
        asked: The number of rows.
        cause: The refusal of the others.
    """

    def __init__(self, labels: list[str], asked: int, cause: BudgetExhausted) -> None:
        self.labels, self.asked, self.cause = labels, asked, cause
        super().__init__(labels, asked, cause)

    def __str__(self) -> str:
        done = f"only the first {len(self.labels):,} of {self.asked:,} rows are labelled"
        return f"{done}: {self.cause}"


async def query(config: QuerierConfig, queries: Path) -> dict[str, list[str]]:
    """Have the rows of a file labelled, block by block.

    A block's key follows from its content: the same command again, after whatever went wrong, gets
    the same labels and spends nothing for those that were answered. What is left of the stream is
    looked at first, so that a file that is too long spends nothing.

    Args:
        config: Who asks whom.
        queries: The file, as the terms say.

    Returns:
        The class of each row, by name, in order: the column `label`.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If a row does not fit.
        BudgetExhausted: If the stream has fewer queries left. Nothing was asked or spent.
        Unfinished: The same, where the first rows were paid for, now or before.
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
    block, labels = config.block or rules.fitting, list[str]()
    parts = [rows[first : first + block] for first in range(0, len(rows), block)]
    keys = [make_request(part, name=config.name).key for part in parts]
    server = connected(identity, roster, config.ask, limits=config.limits, terms=terms.keys)
    async with server as (node, pair):
        look, role = status_session(terms.digest), label_session(terms.digest)
        left, answered = await node.run(look, Streams().token("session"), pair, keys)
        refusal = _refusal(parts, answered, left, rules)
        paid = parts if refusal is None else parts[: [*answered, False].index(False)]
        try:
            # A session for each block, so that no stream is too long for one.
            for part in paid:
                found = await node.run(
                    role,
                    Streams().token("session"),
                    pair,
                    part,
                    rules=rules,
                    block=block,
                    name=config.name,
                )
                labels += [terms.classes[label] for label in found]
        except BudgetExhausted as error:  # others have asked meanwhile
            refusal = error
    if refusal is not None:
        raise Unfinished(labels, len(rows), refusal) if labels else refusal
    return {"label": labels}


def _refusal(
    parts: Sequence[NDArray[np.float32]], answered: Sequence[bool], left: int, rules: ServerRules
) -> BudgetExhausted | None:
    """Return why the blocks that were not answered yet cannot all be, or none if they can."""
    asked = sum(len(part) for part, was in zip(parts, answered, strict=True) if not was)
    if asked <= left:
        return None
    budget = "analyst" if rules.queriers == "apart" else "total"
    error = BudgetExhausted(budget, asked, left, "queries")
    error.add_note(f"Nothing was asked or spent. Ask for at most {left:,} rows that are new.")
    return error
