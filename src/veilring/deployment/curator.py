"""`veilring records`: what a curator does to the records of a prediction server."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.prediction_files import read_records
from veilring.deployment.prediction_terms import load_prediction_terms
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.protocols.prediction.administrator import add_session, forget_session
from veilring.protocols.prediction.records import LabelledRecords, require_ids
from veilring.randomness import Streams

# In one session: it takes seconds, far from the limit on a session.
PIECE_RECORDS_MAX: Final = 4096


_log = logging.getLogger("veilring.curator")


class CuratorConfig(TermsConfig):
    """Whoever adds records to a prediction server, and has it forget them.

    Attributes:
        role: `curator`.
        server: Which.
        key: The column of a CSV file that says whose row it is.
        outside_max: The share of a column's values in a file of records that may lie outside of its
            public range. With more the curator does not add them.
    """

    role: Literal["curator"] = Field(description="curator")
    server: str = Field(description="the name of a party of the roster")
    key: str = Field("id", description="the header of a column")
    outside_max: OutsideMax = OUTSIDE_MAX


async def add(config: CuratorConfig, path: Path) -> int:
    """Add the records of a file, with fresh budgets or what they had left.

    Args:
        config: Who tells whom.
        path: The file, as the terms say.

    Returns:
        How many were not there before.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If a row does not fit, or is there under the same id as another one.
        VeilringError: If the server could not do it; the same call again goes on.
    """
    terms = load_prediction_terms(Path(config.terms))
    records = read_records(path, terms, config.key, config.outside_max, _log)
    pieces = [records.take(range(*piece)) for piece in _pieces(len(records))]
    return await _tell(config, add_session(terms.digest), pieces)


async def forget(config: CuratorConfig, ids: Sequence[str]) -> int:
    """Have records forgotten: they are gone when this returns.

    Args:
        config: Who tells whom.
        ids: Whose, each once.

    Returns:
        How many were there.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If an id is none, occurs twice, or was never there.
        VeilringError: If the server could not do it; the same call again goes on.
    """
    require_ids(ids)
    terms = load_prediction_terms(Path(config.terms))
    pieces = [tuple(ids[slice(*piece)]) for piece in _pieces(len(ids))]
    return await _tell(config, forget_session(terms.digest), pieces)


async def _tell(
    config: CuratorConfig,
    role: Callable[..., Awaitable[int]],
    pieces: Sequence[LabelledRecords] | Sequence[tuple[str, ...]],
) -> int:
    identity, roster = load_credentials(config)
    require_party(roster, "server", config.server)
    changed = 0
    async with connected(identity, roster, config.server, limits=config.limits) as (node, pair):
        for piece in pieces:
            changed += await node.run(role, Streams().token("session"), pair, piece)
    return changed


def _pieces(count: int) -> list[tuple[int, int]]:
    step = PIECE_RECORDS_MAX
    return [(first, min(first + step, count)) for first in range(0, count, step)]
