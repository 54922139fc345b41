"""`veilring ask` for an analyst: a batch of queries, labelled by a data owner."""

import logging
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.owner_terms import load_owner_terms
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.errors import ScenarioError
from veilring.protocols.radius.analyst import ask_nearest, ask_owner, ask_within
from veilring.protocols.radius.messages import LabelRequest
from veilring.randomness import Streams

_log = logging.getLogger("veilring.analyst")

_DECIMALS: Final = 6  # of a radius in the unit cube


class AnalystConfig(TermsConfig):
    """An analyst that has queries labelled by a data owner.

    Attributes:
        role: `analyst`.
        ask: The data owner.
        epsilon: What the file of queries may cost, as one batch; where rows pay, what each query
            may cost a row.
        r: The radius around each query within which rows vote, in the unit cube; or else
        k: about how many neighbours vote.
        outside_max: The share of a column's values in a file of queries that may lie outside of its
            public range. With more the client does not ask.
        name: Another name has the same queries answered once more, drawn and paid anew.
    """

    role: Literal["analyst"] = Field(description="analyst")
    ask: str = Field(description="the name of a party of the roster")
    epsilon: float = Field(gt=0, description="a number above 0")
    r: float | None = Field(None, ge=0, description="a number of at least 0, if k is left out")
    k: int | None = Field(None, ge=1, description="a whole number above 0, if r is left out")
    outside_max: OutsideMax = OUTSIDE_MAX
    name: str = Field("", description="a text, or nothing")


async def label(config: AnalystConfig, queries: Path) -> dict[str, list[object]]:
    """Have the rows of a CSV file labelled as one batch.

    The request's key follows from its content: the same command again, after whatever went wrong,
    gets the same labels and pays once.

    Args:
        config: Who asks whom, and how.
        queries: The file; it has the columns of the terms.

    Returns:
        The class of each row, by name, in order, as the column `label`; with k also the radius
        within which rows voted, as `radius`.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If the request is against the owner's rules.
        BudgetExhausted: If a budget does not suffice.
        HandshakeError: If the owner cannot be reached.
        VeilringError: If the owner could not answer.
    """
    identity, roster = load_credentials(config)
    terms = load_owner_terms(Path(config.terms))
    rows = terms.read_own_queries(queries, config.outside_max, _log)
    request = _request(config, rows)
    terms.rules.check(request)
    require_party(roster, "ask", config.ask)
    async with connected(identity, roster, config.ask, limits=config.limits, terms=terms.keys) as (
        node,
        pair,
    ):
        role, session = ask_owner(terms.digest), Streams().token("session")
        answer = await node.run(role, session, pair, request, rules=terms.rules)
    columns: dict[str, list[object]] = {"label": [terms.classes[each] for each in answer.labels]}
    if config.k is not None:
        columns["radius"] = answer.radii.round(_DECIMALS).tolist()
    return columns


def _request(config: AnalystConfig, queries: NDArray[np.float64]) -> LabelRequest:
    if (config.r is None) == (config.k is None):
        given = "given with k" if config.r is not None else "missing, and so is k"
        raise ScenarioError("r", given, "either r or k")
    if config.k is not None:
        return ask_nearest(queries, config.k, config.epsilon, name=config.name)
    radii = np.full(len(queries), config.r, dtype=np.float64)
    return ask_within(queries, radii, config.epsilon, name=config.name)
