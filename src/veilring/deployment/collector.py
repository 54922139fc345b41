"""`veilring serve` for a collector: it takes reports for as long as it is wanted."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from veilring.deployment.config import CollectorConfig, load_credentials
from veilring.deployment.connecting import answering, require_party
from veilring.deployment.survey_terms import closing_time, load_survey_terms
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ldp.collector import Collector
from veilring.protocols.ldp.store import open_report_store
from veilring.protocols.ldp.store.base import Quotas, Store
from veilring.protocols.ldp.task import Task
from veilring.transport.roster import Roster

_log = logging.getLogger("veilring.collector")


async def collect(
    config: CollectorConfig, *, on_ready: Callable[[Collector], None] | None = None
) -> None:
    """Collect reports until cancelled.

    All files are read and checked first. A cancelled collector lets the transaction that runs end,
    and leaves in order; whoever was not answered sends the same reports again.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once reports are taken.

    Raises:
        ScenarioError: If a file does not fit.
        StoreFailed: If the database cannot be opened.
    """
    identity, roster = load_credentials(config)
    terms = load_survey_terms(Path(config.terms))
    require_party(roster, "identity", identity.name)
    quotas = _quotas(config, roster)
    store = open_configured_store(config, terms.task)
    async with Collector(store, time.time, quotas=quotas) as collector:
        _log.info("task %s, %s", terms.task.digest.hex(), closing_time(terms))
        offers = collector.offers()
        async with answering(identity, roster, config.listen, offers, _log, limits=config.limits):
            if on_ready is not None:
                on_ready(collector)
            await collector.failure()


def _quotas(config: CollectorConfig, roster: Roster) -> Quotas:
    for member in config.reports_max_of:
        if member not in roster.names:
            allowed = f"a member of the roster: {', '.join(roster.names)}"
            raise ScenarioError("reports_max_of", member, allowed)
    if config.reports_max is None:
        _log.warning("no reports_max: each member of the roster may send any number of reports")
    return Quotas(config.reports_max, config.reports_max_of)


def open_configured_store(config: CollectorConfig, task: Task, *, read_only: bool = False) -> Store:
    """Open the database that a configuration names.

    Raises:
        ScenarioError: If it holds something else than this task's reports.
        StoreFailed: If it cannot be reached.
    """
    try:
        return open_report_store(config.store, task, read_only=read_only)
    except InputError as error:
        raise ScenarioError("store", error.value, error.allowed) from error
