"""The outputs of a run: its folder, the HTML page made from it, and the diagram for a terminal.

The folder of a run contains:

- `scenario.toml`: the scenario as it was run.
- `versions.json`: the versions of the software.
- `report.json`: the results, if the run succeeded.
- `error.json`: the error, if the run failed.
- `trace.parquet`: each message and its times, with the fields of `TracedMessage`.
- `events.json`: the events at parties, as a list of marks.
- `model.json`: the public model, if the system makes one.
- `labels.csv`: the identifiers, the number, the true class and the label of each query.
"""

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import tomli_w
from pydantic import TypeAdapter

from veilring.config import parse_toml
from veilring.errors import InputError, VeilringError
from veilring.extras import require_extra
from veilring.nodes.journal import Journal, Mark, TracedMessage
from veilring.nodes.run import Failure
from veilring.privacy.files import write_whole
from veilring.protocols.membership import PublicModel
from veilring.scenarios.report import Report, RoleReport
from veilring.scenarios.schema import RoleScenario, Scenario, make_experiment

if TYPE_CHECKING:
    import polars as pl

_REPORT: Final = "report.json"
_ERROR: Final = "error.json"
_SCENARIO: Final = "scenario.toml"
_VERSIONS: Final = "versions.json"
_TRACE: Final = "trace.parquet"
_EVENTS: Final = "events.json"
_MODEL: Final = "model.json"
_ANSWERS: Final = "labels.csv"
# The versions that determine the numbers of a seeded run, needed to repeat it.
_VERSIONS_OF: Final = ("veilring", "numpy", "scipy", "networkx", "scikit-learn")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The contents of a run's folder.

    Attributes:
        report: The report, if the run succeeded.
        failure: The error, if the run failed.
        messages: The traced messages, in order of time.
        marks: The events at parties, in order of time.
    """

    name: str
    scenario: Scenario | RoleScenario
    versions: dict[str, str]
    report: Report | RoleReport | None
    failure: Failure | None
    messages: tuple[TracedMessage, ...]
    marks: tuple[Mark, ...]


def open_folder(folder: Path, option: str = "--out") -> Path:
    """Return the folder, creating it if necessary, before anything is run."""
    require_extra("polars")
    allowed = "a folder that can be made, without a run in it"
    if folder.suffix == ".html":
        raise InputError(option, folder, "a folder; `veilring report` writes the page")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(option, folder, f"{allowed} ({error})") from error
    for held in (_REPORT, _ERROR, _MODEL):
        if (folder / held).exists():
            raise InputError.because(
                f"{folder} already contains {held}; choose another {option}", field=option
            )
    return folder


def write_report(
    report: Report | RoleReport,
    journal: Journal,
    folder: Path,
    model: PublicModel | None = None,
    answers: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write everything about a run that succeeded, with its public model and answers, if any."""
    _write_circumstances(report.scenario, journal, folder)
    _write_json(folder / _REPORT, report.as_json())
    if model is not None:
        model.save(folder / _MODEL)
    if answers:
        import polars as pl

        write_whole(folder / _ANSWERS, pl.DataFrame(answers).write_csv(), private=True)


def write_failure(
    error: VeilringError, scenario: Scenario | RoleScenario, journal: Journal, folder: Path
) -> None:
    """Write what was recorded of a run that failed."""
    _write_circumstances(scenario, journal, folder)
    _write_json(folder / _ERROR, Failure.of(error)._asdict())


def _write_circumstances(scenario: Scenario | RoleScenario, journal: Journal, folder: Path) -> None:
    tables = scenario.model_dump(mode="json", exclude_none=True)
    (folder / _SCENARIO).write_text(tomli_w.dumps(tables), encoding="utf-8")
    _write_json(folder / _VERSIONS, versions_used())
    # Of the parties that one fault strikes, the order says which is which, and is kept.
    in_order = sorted(journal.marks, key=lambda mark: (mark.seconds, mark.kind != "fault"))
    _write_json(folder / _EVENTS, [mark._asdict() for mark in in_order])
    in_time = sorted(journal.messages, key=lambda message: message.seconds)
    _frame(in_time).write_parquet(folder / _TRACE)


def versions_used() -> dict[str, str]:
    """Return the platform and the versions of the software that affects the numbers of a run."""
    versions = {name: metadata.version(name) for name in _VERSIONS_OF}
    return versions | {"python": platform.python_version(), "platform": platform.platform()}


def _write_json(path: Path, plain: object) -> None:
    path.write_text(json.dumps(plain, indent=2), encoding="utf-8")


def _frame(messages: Iterable[TracedMessage]) -> "pl.DataFrame":
    import polars as pl

    columns = {
        "sender": pl.String,
        "receiver": pl.String,
        "sent_seconds": pl.Float64,
        "received_seconds": pl.Float64,
        "round": pl.Int64,
        "kind": pl.String,
        "bytes": pl.Int64,
        "number": pl.Int64,
        "session": pl.String,
    }
    return pl.DataFrame(list(messages), schema=columns, orient="row")


def read_folder(folder: Path) -> RunFolder:
    """Read a folder written by `write_report` or `write_failure`."""
    require_extra("polars")
    outcomes = [folder / name for name in (_REPORT, _ERROR) if (folder / name).exists()]
    if len(outcomes) != 1:
        allowed = f"a folder written by `veilring run --out`, with {_REPORT} or {_ERROR}"
        found = "is not a folder"
        if folder.is_dir():
            found = f"has {'both' if outcomes else 'none'} of {_REPORT} and {_ERROR}"
        raise InputError.because(f"{folder} {found}; give {allowed}", field="DIR")
    failed = outcomes[0].name == _ERROR
    scenario = _read(folder / _SCENARIO, make_experiment, parse_toml)
    read: Callable[[Any], Report | RoleReport] = RoleReport.from_json
    if isinstance(scenario, Scenario):
        read = Report.from_json
    return RunFolder(
        name=folder.resolve().name,
        scenario=scenario,
        versions=_read(folder / _VERSIONS, _checked(dict[str, str])),
        report=None if failed else _read(outcomes[0], read),
        failure=_read(outcomes[0], _checked(Failure)) if failed else None,
        messages=_read_trace(folder / _TRACE),
        marks=_read(folder / _EVENTS, _checked(tuple[Mark, ...])),
    )


def _checked(of: type[T]) -> Callable[[Any], T]:
    return TypeAdapter(of).validate_python


def _read(path: Path, make: Callable[[Any], T], parse: Callable[[str], object] = json.loads) -> T:
    """Read a text, parse it with `parse` and convert it with `make`."""
    try:
        return make(parse(path.read_text(encoding="utf-8")))
    # Errors of JSON, TOML and pydantic are ValueErrors; brackets may nest too deeply.
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            "DIR", path, f"a file written by `veilring run --out` ({error})"
        ) from error


def _read_trace(path: Path) -> tuple[TracedMessage, ...]:
    import polars as pl

    allowed = "the table of messages written by `veilring run --out`"
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError("DIR", path, f"{allowed} ({error})") from error
    seen = pl.any_horizontal(pl.col("^(sent|received)_seconds$").is_not_null())
    if frame.schema != _frame(()).schema or not frame.select(seen.all()).item():
        raise InputError("DIR", path, allowed)
    return tuple(TracedMessage(*row) for row in frame.iter_rows())
