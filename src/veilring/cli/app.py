"""The application: its commands, and error reporting for all of them.

A command is a function with Typer annotations. Its module imports slow dependencies only when the
command runs, so that `--help` stays quick.
"""

import errno
import json
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from veilring.cli.audit import audit_command, explore_command
from veilring.cli.compare import compare_command, tune_command
from veilring.cli.deploy import deploy_app
from veilring.cli.keys import keys_app
from veilring.cli.operate import check_command, status_command
from veilring.cli.options import EXIT_INTERRUPTED, HELP_NAMES, bare_flags, tidy
from veilring.cli.parties import (
    ask_command,
    embed_command,
    records_app,
    serve_command,
    submit_command,
)
from veilring.cli.run import merge, report, reproduce, run_command, sweep, trace
from veilring.cli.scenarios import scenarios, systems
from veilring.cli.schema import schema_app
from veilring.cli.state import ledger_app, state_app
from veilring.cli.stats import stats_command
from veilring.cli.survey import survey_app
from veilring.cli.surveys import (
    classify_command,
    estimate_command,
    export_command,
    oracles_command,
    tally_command,
)
from veilring.cli.trail import trail_app
from veilring.errors import InputError, MissingExtra, VeilringError
from veilring.extras import name_missing_extras

EXIT_RUN: Final = 1
EXIT_INPUT: Final = 2  # Typer's exit code for a wrong option, too
_AS_JSON: Final = "veilring.as_json"
_STOPPED: Final = "stopped"
# A disk that is full, over its quota, broken or read-only, a file that is too long or not ours to
# write: no mistake of the program, so its trace would help nobody.
_DISK: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM}
)
_HELP: Final = """Private classification among parties that do not trust each other.

Run a scenario to see its accuracy, its cost and its leakage:

    veilring scenarios
    veilring systems
    veilring run wine
    veilring run wine --protocol noisy-votes
    veilring run wine --runtime simulated --set parties.count=100
    veilring run digits --set protocol.k=9 --seed 7 --json

Exit codes: 0 success; 1 a run failed; 2 the input was wrong, or the state is missing or damaged;
130 interrupted by Ctrl-C.
"""


class _Group(TyperGroup):
    """Shows our own errors as one paragraph each; any other error is a bug and keeps its trace.

    A command with `--json` also prints its error as an object on standard output.
    """

    @override
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        tidy(self)

    @override
    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        bare_flags(params)  # the options that Typer adds for shell completion
        return params

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        as_json = ctx.meta[_AS_JSON]
        try:
            with name_missing_extras():
                return super().invoke(ctx)
        except VeilringError as error:
            if as_json:
                _print_object(**_described(error))
            if ctx.params["debug"]:
                raise
            typer.echo(
                "\n".join([f"veilring: {error}", *getattr(error, "__notes__", ())]), err=True
            )
            _discard_output()
            from veilring.privacy.witness import StateRefused

            is_theirs = isinstance(error, InputError | MissingExtra | StateRefused)
            raise typer.Exit(EXIT_INPUT if is_theirs else EXIT_RUN) from error
        except KeyboardInterrupt:
            if as_json:
                _print_object(error="KeyboardInterrupt", message=_STOPPED)
            typer.echo(f"veilring: {_STOPPED}", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except OSError as error:
            if error.errno not in _DISK or ctx.params["debug"]:
                raise
            _discard_output()
            what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
            typer.echo(f"veilring: {what}: {error.strerror}", err=True)
            raise typer.Exit(EXIT_RUN) from error
        except Exception as error:
            if hasattr(error, "format_message"):
                _complete(error, as_json=as_json)
            raise


def _complete(error: Any, *, as_json: bool) -> None:  # noqa: ANN401  (Typer does not export its type)
    """Complete the error of a wrong option, which Typer shows, and print it as an object."""
    if hasattr(error, "possibilities"):  # an unknown option may be the start of a known one
        known = [name for option in error.ctx.command.params for name in option.opts]
        longer = [name for name in known if name.startswith(error.option_name)]
        error.possibilities = list(dict.fromkeys([*longer, *(error.possibilities or ())]))
    if as_json:
        _print_object(error=type(error).__name__, message=error.format_message())


def _discard_output() -> None:
    """Drop output that cannot be written, which Python would try to write again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_object(**fields: object) -> None:
    try:
        typer.echo(json.dumps(fields, indent=2))
    except OSError:  # the error itself is also on standard error
        _discard_output()


def _described(error: VeilringError) -> dict[str, object]:
    """Return an error as an object: its message, who is at fault, and the inputs that are wrong."""
    from veilring.nodes.run import Failure

    fields: dict[str, object] = Failure.of(error)._asdict()
    if isinstance(error, InputError):
        wrong = (error, *error.others)
        names = ("field", "value", "allowed", "message")
        fields["inputs"] = [{name: getattr(each, name) for name in names} for each in wrong]
    return fields


def _show_version(asked: bool) -> None:  # noqa: FBT001  (Typer calls it by position)
    if asked:
        typer.echo(f"veilring {version('veilring')}")
        raise typer.Exit


app = typer.Typer(
    cls=_Group,
    help=_HELP,
    context_settings={"help_option_names": [*HELP_NAMES]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its traces show local variables, which may be secrets
)


@app.callback()
def _options(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="VEILRING_DEBUG", help="Show the full traceback of an error."
        ),
    ] = False,
) -> None:
    """Declare the options of all commands; `_Group` reads them."""


app.command("run")(run_command)
app.command("compare")(compare_command)
app.command()(report)
app.command()(trace)
app.command()(sweep)
app.command()(merge)
app.command("explore")(explore_command)
app.command("audit")(audit_command)
app.command()(reproduce)
app.command("tune")(tune_command)
app.command("embed")(embed_command)
app.command()(scenarios)
app.command()(systems)
app.command("stats")(stats_command)
app.command("check")(check_command)
app.command("serve")(serve_command)
app.command("status")(status_command)
app.command("ask")(ask_command)
app.command("classify")(classify_command)
app.command("submit")(submit_command)
app.command("estimate")(estimate_command)
app.command("export")(export_command)
app.command("tally")(tally_command)
app.command("oracles")(oracles_command)
app.add_typer(deploy_app, name="deploy")
app.add_typer(keys_app, name="keys")
app.add_typer(ledger_app, name="ledger")
app.add_typer(records_app, name="records")
app.add_typer(schema_app, name="schema")
app.add_typer(state_app, name="state")
app.add_typer(survey_app, name="survey")
app.add_typer(trail_app, name="trail")
