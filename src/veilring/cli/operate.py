"""`veilring check` and `status`, and the log of `veilring serve`."""

import datetime as dt
import json
import logging
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typing_extensions import override

from veilring.cli.options import AsJson, ConfigFile

if TYPE_CHECKING:
    from veilring.deployment.start import Check
    from veilring.deployment.status import StatusReport

_EXIT_WARNING: Final = 1
_EXIT_FAILED: Final = 2
_EXIT_WAITING: Final = 1
_EXIT_NOT_RUNNING: Final = 2
_LOG_LINE: Final = "%(asctime)s %(name)s %(levelname)s: %(message)s"
_SESSION_SHOWN: Final = 16  # characters, which no two sessions share by chance
_NAME_WIDTH: Final = 14
_NAMES_SHOWN: Final = 10  # of the members whose certificates end first


def check_command(
    config: ConfigFile,
    *,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers", help="Compare roster, formats and terms with the parties that answer."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there are warnings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the checks of `veilring serve` without starting the party.

    Prints one line for each check: the configuration, the key and its certificate, the clock, the
    terms, the rows, the free disk, all certificates of the roster, the state with its budgets, and
    the port. An error states the remedy. Nothing changes on disk, and the party may be running.
    Keep the output as private as the rows, because it has their number, and the numbers of values
    outside the public ranges.

    With --peers it sends a greeting to each other party, which refuses it after comparing the
    roster, the formats of messages and the terms. Nothing that depends on rows is sent.

    Exit codes: 0 no check failed; 1 warnings, with --strict; 2 a check failed.

    For example:

        veilring check ada.toml --peers --strict
    """
    checks = _checks(config, peers=peers)
    outcomes = {each.outcome for each in checks}
    if as_json:
        done = {"version": version("veilring"), "checks": [asdict(each) for each in checks]}
        typer.echo(json.dumps(done, indent=2))
    else:
        for each in checks:
            found = " ".join(each.found.split())  # one line
            typer.echo(f"{each.outcome:8} {each.name:{_NAME_WIDTH}} {found}")
    if "failed" in outcomes:
        raise typer.Exit(_EXIT_FAILED)
    if strict and "warning" in outcomes:
        raise typer.Exit(_EXIT_WARNING)


def _checks(config: Path, *, peers: bool) -> "list[Check]":
    from veilring.deployment import load_config
    from veilring.deployment.duties import start_of
    from veilring.deployment.start import Check
    from veilring.errors import InputError

    try:
        start = start_of(load_config(config))
    except InputError as error:
        return [Check("configuration", "failed", str(error))]
    read = Check("configuration", "ok", f"{config}: {start.config.role}")
    return [read, *start.run(peers=peers)]


def status_command(
    config: ConfigFile,
    *,
    as_json: AsJson = False,
    as_metrics: Annotated[
        bool, typer.Option("--metrics", help="Print the numbers in the text format of Prometheus.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            help="Serve them to Prometheus at this port, until it ends.", min=1, max=65535
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address for --port.", show_default="only this machine")
    ] = None,
) -> None:
    """Print the status of a running party of this machine.

    Shows whether it is ready, or the parties that it waits for; its sessions, failures and
    refusals; the days until certificates end; the budget spent and left of each client; and the
    last error. It never shows rows, queries or labels.

    The party answers at a Unix socket beside its state, or at the key `socket` of its
    configuration. Only its own user can connect to it.

    Exit codes, for probes: 0 ready; 1 waiting for other parties; 2 not running, or it does not
    answer.

    For example:

        veilring status ada.toml --json
        veilring status ada.toml --port 9464
    """
    from veilring.deployment import load_config
    from veilring.deployment.config import ServerConfig
    from veilring.deployment.status import STATUS_SECONDS, read_status
    from veilring.errors import InputError

    loaded = load_config(config)
    if not isinstance(loaded, ServerConfig):
        raise InputError.because(f"the role {loaded.role} does not run", field="role")
    path = Path(loaded.socket)
    if port is not None:
        from veilring.deployment.metrics import serve_metrics

        serve_metrics(lambda: read_status(path), port, host).join()
    try:
        found, why = read_status(path), f"no party is running at {path}"
    except TimeoutError:
        found, why = None, f"the party at {path} does not answer within {STATUS_SECONDS:g} s"
    if found is None:
        said = json.dumps({"ready": False, "message": why}) if as_json else why
        typer.echo(said, err=as_metrics)
        raise typer.Exit(_EXIT_NOT_RUNNING)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif as_metrics:
        from veilring.deployment.metrics import metrics_text

        typer.echo(metrics_text(found), nl=False)
    else:
        _show(found)
    if not found["ready"]:
        raise typer.Exit(_EXIT_WAITING)


def _show(status: "StatusReport") -> None:
    sessions, uptime = status["sessions"], dt.timedelta(seconds=round(status["uptime"]))
    state = "ready" if status["ready"] else "waiting"
    typer.echo(f"{status['party']} is {state} ({status['role']}, veilring {status['version']})")
    for name, why in status["waiting_for"].items():
        typer.echo(f"  waits for {name} at {why}")
    typer.echo(f"uptime        {uptime}")
    failed = sum(sessions["failed"].values())
    counted = f"{sessions['running']:,} running, {sessions['finished']:,} finished"
    typer.echo(f"sessions      {counted}, {failed:,} failed")
    for title, kinds in (("failures", sessions["failed"]), ("refusals", status["refusals"])):
        if kinds:
            typer.echo(f"{title:13} {_listed(kinds)}")
    soonest = sorted(status["certificate_days"].items(), key=lambda each: each[1])
    more = f" and {len(soonest) - _NAMES_SHOWN:,} more" if len(soonest) > _NAMES_SHOWN else ""
    typer.echo(f"certificates  days left: {_listed(dict(soonest[:_NAMES_SHOWN]))}{more}")
    if status["reports"] is not None:
        typer.echo(f"reports       {_listed(status['reports'])}")
    if previous := status["previous_key_days"]:
        typer.echo(f"previous keys days left: {_listed(previous)}")
    if status["reload_error"]:
        typer.echo(f"reload failed {status['reload_error']}")
    if status["next_key"]:
        typer.echo("next key      waits beside the present one: see `veilring keys renew --use`")
    if status["last_error"] is not None:
        ago, text = status["last_error"]
        typer.echo(f"last error    {dt.timedelta(seconds=round(ago))} ago: {text}")
    if status["budget"] is not None:
        from veilring.cli.state import show_totals
        from veilring.deployment.status import totals_of

        show_totals(totals_of(status["budget"]))


def _listed(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())


class _JsonLines(logging.Formatter):
    """Writes each line of a log as a JSON object."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        from veilring.nodes.service import SESSION

        line = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if session := SESSION.get():
            line["session"] = session
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _TextLines(logging.Formatter):
    """Writes each line of a log as text, with its session at the end."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        from veilring.nodes.service import SESSION

        session = SESSION.get()[:_SESSION_SHOWN]
        return super().formatMessage(record) + (f" [session {session}]" if session else "")


def log_to_stderr(log_format: str = "text") -> None:
    """Write the log to standard error, as text or as JSON objects."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if log_format == "json" else _TextLines(_LOG_LINE))
    logging.basicConfig(handlers=[handler])
