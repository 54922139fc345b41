"""`veilring serve` for a prediction server, and `veilring records repair` for its files."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from veilring.deployment.columns import Words
from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import answering, require_party
from veilring.deployment.prediction_terms import PredictionTerms, load_prediction_terms
from veilring.errors import InputError, ScenarioError
from veilring.nodes.aside import Threads
from veilring.privacy.accounting import doubt_of_delta
from veilring.protocols.prediction.rowfile import StateDamage
from veilring.protocols.prediction.rowfile import repair_state as repair_files
from veilring.protocols.prediction.server import PredictionServer
from veilring.protocols.prediction.state import ServerState, open_state
from veilring.transport.tls import LOOPBACK

_log = logging.getLogger("veilring.prediction")


class PredictionServerConfig(TermsConfig):
    """A server that labels queriers' queries, on records that curators give it.

    Attributes:
        role: `prediction-server`.
        curators: Who of the roster may add and forget records.
        state: The folder with its records and what they spent. Nobody else reads it, and whoever
            puts an old copy back lets records spend twice.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["prediction-server"] = Field(description="prediction-server")
    curators: Words = Field((), description="a list of names of the roster")
    state: FilePath = "state"
    listen: AnAddress = LOOPBACK


async def predict(
    config: PredictionServerConfig, *, on_ready: Callable[[PredictionServer], None] | None = None
) -> None:
    """Answer, add and forget until cancelled.

    All files are read and checked first. A cancelled server lets what it is working on end, and
    leaves in order; whoever was not answered asks the same again and does not pay twice.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once queries are answered.

    Raises:
        ScenarioError: If a file does not fit.
        StoreFailed: If the disk fails. What was answered until then is on it.
    """
    identity, roster = load_credentials(config)
    terms = load_prediction_terms(Path(config.terms))
    require_party(roster, "identity", identity.name)
    strangers = sorted(set(config.curators) - set(roster.names))
    if strangers:
        raise ScenarioError("curators", ", ".join(strangers), "members of the roster")
    if doubt := doubt_of_delta(terms.rules.delta):
        _log.warning("prediction.%s", doubt)
    with _opened(config, terms) as state:
        # One thread, because each answer depends on what the one before it has spent.
        async with Threads(1, "predictions") as aside:
            server = PredictionServer(state, aside, config.curators)
            offers = server.offers(terms.digest)
            kept = f"{len(state):,} records, {state.answered:,} queries answered"
            place = (identity, roster, config.listen, offers, _log)
            async with answering(*place, limits=config.limits, terms=terms.keys, kept=kept):
                if on_ready is not None:
                    on_ready(server)
                await server.failure()


def repair(
    config: PredictionServerConfig, *, lose_records: bool, lose_budgets: bool
) -> StateDamage:
    """Say what a server's files have lost, and make them fit again if all of that is accepted.

    Args:
        config: Of a server that does not run.
        lose_records: See `veilring.protocols.prediction.rowfile.repair_state`.
        lose_budgets: The same.

    Raises:
        ScenarioError: If a file does not fit, or the server runs.
        StoreFailed: If a file cannot be read, or the ledger is damaged.
    """
    terms = load_prediction_terms(Path(config.terms))
    with _state_errors():
        return repair_files(
            terms.rules,
            Path(config.state),
            terms.schema_digest,
            lose_records=lose_records,
            lose_budgets=lose_budgets,
        )


def _opened(config: PredictionServerConfig, terms: PredictionTerms) -> ServerState:
    with _state_errors():
        return open_state(terms.rules, Path(config.state), terms.schema_digest)


@contextmanager
def _state_errors() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise ScenarioError(f"state ({error.field})", error.value, error.allowed) from error
