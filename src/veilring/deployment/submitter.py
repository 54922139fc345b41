"""`veilring submit`: the reports of many clients, each made once, sent until acknowledged."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unicodedata import normalize

import numpy as np

from veilring.data.csv import read_cells
from veilring.deployment.columns import Cells
from veilring.deployment.config import SubmitterConfig, load_credentials
from veilring.deployment.connecting import require_party
from veilring.deployment.ranges import check_ranges
from veilring.deployment.sending import Progress, Sender
from veilring.deployment.survey_terms import SurveyTerms
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ldp.messages import ReportVerdict
from veilring.protocols.ldp.outbox import ROW_NUMBER, Outbox
from veilring.protocols.ldp.roles import ClientPool
from veilring.randomness import Streams

# Clients whose reports are made and kept in one transaction: a second's work, and what a crash
# before its end costs is nothing but that second.
CLIENTS_MAX: Final = 50_000

_log = logging.getLogger("veilring.submitter")


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of the clients of a file.

    Attributes:
        task: The hash of the task.
        epsilon: What each report spends.
        refused: How many clients have no budget left, so that nothing was made for them.
        verdicts: How many reports of the outbox to this task have which verdict.
    """

    task: bytes
    epsilon: float
    refused: int
    verdicts: dict[ReportVerdict | None, int]

    @property
    def kept(self) -> int:
        """How many reports are stored and count."""
        return sum(self.verdicts.get(verdict, 0) for verdict in ReportVerdict if verdict.is_kept)

    @property
    def is_complete(self) -> bool:
        """Whether every client's report counts."""
        return not self.refused and self.kept == sum(self.verdicts.values())


async def submit(
    config: SubmitterConfig,
    rows: Path,
    *,
    at_once: int | None = None,
    progress: Progress | None = None,
) -> Submitted:
    """Make one report for each row of a CSV file that has none yet, and send what is unanswered.

    Interrupted at any point, by whatever, the same call goes on from there.

    Args:
        config: Who submits to whom.
        rows: One row a client, with the columns of the task's terms.
        at_once: How many reports a message may have; as many as fit unless given.
        progress: Told how far it is.

    Raises:
        ScenarioError: If a file does not fit.
        ProtocolViolation: If the collector's task is not what it claims.
        HandshakeError: If the collector cannot be reached; what was made is kept.
        VeilringError: If it refused, or could not be reached for long.
    """
    identity, roster = load_credentials(config)
    require_party(roster, "collector", config.collector)
    report = progress or (lambda _doing, _done, _total: None)
    with _open_outbox(config) as outbox:
        async with Sender(identity, roster, config.collector, config.limits) as sender:
            terms = await sender.read_task()
            _require_task(config, terms)
            outbox.wait_again(terms.task)
            refused = _make_reports(config, rows, terms, outbox, report)
            await sender.send(terms.task, outbox, at_once=at_once, progress=report)
        verdicts = outbox.count(terms.task)
    return Submitted(terms.task.digest, terms.task.survey.exact_epsilon, refused, verdicts)


def _open_outbox(config: SubmitterConfig) -> Outbox:
    try:
        return Outbox(Path(config.outbox))
    except InputError as error:
        raise ScenarioError("outbox", error.value, error.allowed) from error


def _require_task(config: SubmitterConfig, terms: SurveyTerms) -> None:
    digest = terms.task.digest.hex()
    _log.info("task %s, epsilon %g", digest, terms.task.survey.exact_epsilon)
    if config.task and config.task != digest:
        raise ScenarioError("task", config.task, f"{digest}, or a collector that has that task")


def _make_reports(
    config: SubmitterConfig, path: Path, terms: SurveyTerms, outbox: Outbox, progress: Progress
) -> int:
    """Make and keep the reports of all clients that can afford one, and return how many cannot."""
    cells = read_cells(path)
    check_ranges(path, terms.features, cells, config.outside_max, _log)
    pool = terms.clients_of(path, cells)
    names = _names(config, path, cells, len(pool))
    try:
        compared = _compared(config, terms, cells)
        rows = outbox.recognise(config.key, names, compared, amend=config.amend)
    except InputError as error:
        field = path.name if error.field == "rows" else error.field
        raise ScenarioError(field, error.value, error.allowed) from error
    new = np.flatnonzero(~outbox.reported(terms.task, names))
    epsilon = terms.task.survey.exact_epsilon
    can = outbox.can_afford([names[place] for place in new.tolist()], epsilon, config.budget)
    rng = Streams().generator("clients")
    # Which reports are made together must not show where in the file their rows are.
    chosen = rng.permutation(new[can])
    for first in range(0, len(chosen), CLIENTS_MAX):
        places = chosen[first : first + CLIENTS_MAX]
        some = ClientPool(pool.rows[places], pool.labels[places])
        outbox.add(terms.task, rows.at(places.tolist()), some.answer(terms.task, rng))
        progress("reports made", first + len(places), len(chosen))
    return int(len(new) - len(chosen))


def _names(config: SubmitterConfig, path: Path, cells: Cells, count: int) -> list[str]:
    """Return each client's name in the outbox; blanks around a key do not count."""
    if config.key == ROW_NUMBER:
        if ROW_NUMBER in cells:
            raise ScenarioError("key", ROW_NUMBER, f"a column of {path.name} with another name")
        return [str(row) for row in range(1, count + 1)]
    if config.key not in cells:
        allowed = f"a column of {path.name} ({', '.join(cells)}), or {ROW_NUMBER!r}"
        raise ScenarioError("key", config.key, allowed)
    names = [normalize("NFC", cell).strip() for cell in cells[config.key].tolist()]
    if len(set(names)) != len(names):
        raise ScenarioError("key", config.key, "a column whose cells are all different")
    return names


def _compared(config: SubmitterConfig, terms: SurveyTerms, cells: Cells) -> Cells:
    """Return the cells that a known client has to have still.

    Under a key these are the cells that the task asks for; under a number, which any row may have
    in another file, all cells of the row.
    """
    if config.key == ROW_NUMBER:
        return cells
    asked = {feature.name for feature in terms.features}
    label = {list(cells)[-1]} if terms.classes else set[str]()
    return {header: column for header, column in cells.items() if header in asked | label}
