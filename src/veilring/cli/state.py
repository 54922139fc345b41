"""`veilring state`: create the durable state of a party."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.errors import ScenarioError

state_app = typer.Typer(
    help="Create the ledger, store or outbox of a party.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@state_app.callback()
def _state() -> None:
    """Make this a group of one command."""


@state_app.command("new")
def new_command(
    config: Annotated[
        Path, typer.Argument(help="Configuration file of the party.", metavar="CONFIG")
    ],
) -> None:
    """Create the state that a configuration names: a ledger, store, outbox or folder of records.

    Run it once for each party, before its first start. The other commands never create state: if it
    is missing, they stop. An empty ledger would forget what was spent, so a disk that is not
    mounted must not look like a new deployment. `veilring deploy` creates the state of a trial.

    For example:

        veilring state new ada.toml
        veilring serve ada.toml
    """
    from veilring.deployment import begin_state, load_config

    loaded = load_config(config)
    if not begin_state(loaded):
        raise ScenarioError.because(
            f"a party of the role {loaded.role} keeps no state under these terms, and needs none",
            field="role",
        )
    typer.echo(f"created the state of {config}")
