"""The application: its commands, and how all of them report errors.

A command is a function with Typer annotations. Its module imports what is slow only when the
command runs, so that `--help` is quick.
"""

import json
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from veilring.cli.ask import ask
from veilring.cli.compare import compare
from veilring.cli.deploy import app as deploy
from veilring.cli.embed import embed
from veilring.cli.estimate import estimate
from veilring.cli.explore import explore
from veilring.cli.export import export
from veilring.cli.help_text import HELP_NAMES, bare_flags, tidy
from veilring.cli.keys import app as keys
from veilring.cli.leakage import leakage
from veilring.cli.ledger import app as ledger
from veilring.cli.options import EXIT_INTERRUPTED
from veilring.cli.oracles import oracles
from veilring.cli.records import app as records
from veilring.cli.report import report
from veilring.cli.reproduce import reproduce
from veilring.cli.run import run
from veilring.cli.scale import app as scale
from veilring.cli.scenarios import scenarios
from veilring.cli.serve import serve
from veilring.cli.submit import submit
from veilring.cli.sweep import sweep
from veilring.cli.tally import tally
from veilring.cli.trace import trace
from veilring.cli.tune import tune
from veilring.errors import InputError, VeilringError

EXIT_RUN: Final = 1
EXIT_INPUT: Final = 2  # what Typer exits with for a wrong option, too

_AS_JSON: Final = "veilring.as_json"
_STOPPED: Final = "stopped"

_HELP: Final = """Private classification among parties that do not trust each other.

Run a scenario and see how well it classifies, what it costs and what it leaks:

    veilring scenarios

    veilring run wine

    veilring run wine --runtime simulated --set parties.count=100

    veilring run digits --set protocol.k=9 --seed 7 --json

Exit codes: 0 all went well; 1 a run failed; 2 the input was wrong; 130 it was stopped by Ctrl-C.
"""


class _Group(TyperGroup):
    """Shows our own errors as one paragraph each; any other error is a bug and keeps its trace.

    A command that was asked for JSON prints its error as an object as well, on standard output.
    """

    @override
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        tidy(self)

    @override
    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        bare_flags(params)  # those that Typer adds for completion
        return params

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        as_json = ctx.meta[_AS_JSON]
        try:
            return super().invoke(ctx)
        except VeilringError as error:
            if as_json:
                _print_object(**_described(error))
            if ctx.params["debug"]:
                raise
            typer.echo(
                "\n".join([f"veilring: {error}", *getattr(error, "__notes__", ())]), err=True
            )
            raise typer.Exit(EXIT_INPUT if isinstance(error, InputError) else EXIT_RUN) from error
        except KeyboardInterrupt:
            if as_json:
                _print_object(error="KeyboardInterrupt", message=_STOPPED)
            typer.echo(f"veilring: {_STOPPED}", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            # A wrong option: Typer shows it, and does not export the type of the error.
            if as_json and hasattr(error, "format_message"):
                _print_object(error=type(error).__name__, message=error.format_message())
            raise


def _print_object(**fields: object) -> None:
    typer.echo(json.dumps(fields, indent=2))


def _described(error: VeilringError) -> dict[str, object]:
    """Return an error as an object: what it says, whose fault it is, which inputs are wrong."""
    from veilring.scenarios.reporting import Failure

    fields: dict[str, object] = Failure.of(error)._asdict()
    if isinstance(error, InputError):
        wrong = (error, *getattr(error, "others", ()))
        names = ("field", "value", "allowed")
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
    pretty_exceptions_enable=False,  # its traces show local variables, and these may be secrets
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
        typer.Option("--debug", envvar="VEILRING_DEBUG", help="Show the full trace of an error."),
    ] = False,
) -> None:
    """Declare the options of all commands; `_Group` reads them."""


app.command()(run)
app.command()(compare)
app.command()(report)
app.command()(trace)
app.command()(sweep)
app.command()(explore)
app.command()(reproduce)
app.command()(leakage)
app.command()(tune)
app.command()(embed)
app.command()(scenarios)
app.command()(serve)
app.command()(ask)
app.command()(submit)
app.command()(estimate)
app.command()(export)
app.command()(tally)
app.command()(oracles)
app.add_typer(deploy, name="deploy")
app.add_typer(keys, name="keys")
app.add_typer(ledger, name="ledger")
app.add_typer(records, name="records")
app.add_typer(scale, name="scale")
