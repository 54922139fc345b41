"""Adding up reports that lie in Parquet files: here, on this machine's processes, or on a cluster.

It also says what is in such files: all that a store's estimates are, without the store.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from veilring.deployment.collector import open_configured_store
from veilring.deployment.config import CollectorConfig
from veilring.deployment.survey_terms import load_survey_terms
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.parquet import cut_pieces, tally_parquet, tally_piece, write_parquet
from veilring.protocols.ldp.task import Task
from veilring.scenarios.sweep import Engine
from veilring.scenarios.sweep.engine import each_done


def tally_files(
    task: Task, paths: Iterable[Path], engine: Engine | None = None, *, at_once: int | None = None
) -> Tally:
    """Return the tally of all reports in some files, the same to the last count on any engine.

    Args:
        task: What they answer.
        paths: The files; on a cluster, its workers find them under the same absolute paths.
        engine: Where pieces of them are added up; in this process unless given.
        at_once: How many reports a piece may have, if it shall be another number than `cut`'s.

    Raises:
        InputError: If a file or a report does not fit the task, or the engine is not there.
        ClusterError: If workers died.
    """
    if engine is None:
        return tally_parquet(task, paths, at_once=at_once)
    total = Tally.empty(task.survey)
    pieces = cut_pieces(task, paths, at_once=at_once)
    if pieces:
        with each_done(partial(tally_piece, task), pieces, engine) as tallies:
            for each in tallies:
                total += each
    return total


def export_reports(
    config: CollectorConfig, folder: Path, *, without: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Write all reports that a collector has stored, as of one moment, also while it collects.

    Args:
        config: The collector's own.
        folder: Where to; there is nothing yet.
        without: The members whose reports are left out.

    Returns:
        The files.

    Raises:
        ScenarioError: If the terms do not fit.
        InputError: If the folder is there already, or a member that is left out has sent no report.
        StoreFailed: If the store cannot be read.
    """
    task = load_survey_terms(Path(config.terms)).task
    store = open_configured_store(config, task, read_only=True)
    try:
        with store.transaction():
            stored = (
                (question, reports)
                for question in range(len(task.survey.questions))
                for reports in store.stored(question, without=without)
            )
            return write_parquet(task, stored, folder)
    finally:
        store.close()
