"""`veilring state`: create the durable state of a party, and back it up."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.errors import ScenarioError

state_app = typer.Typer(
    help="Create the ledger, store or outbox of a party, or back it up.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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


@state_app.command("backup")
def backup_command(
    path: Annotated[Path, typer.Argument(help="File to copy.", metavar="FILE")],
    to: Annotated[Path, typer.Argument(help="File to write.", metavar="COPY")],
) -> None:
    """Copy a ledger, store or outbox into one complete file, even while its server is running.

    A plain copy of the files of a running server may be incomplete, and is refused on start.

    To restore a copy, stop the server and move four files away: the original and the files next to
    it that end in -wal, -shm and .lock. The first two exist only after a kill, and would damage the
    copy. Then put the copy in its place. Charges, answers and reports stored after the copy was
    made are lost.

    For example:

        veilring state backup queries.ledger queries-2026-11-22.ledger
    """
    from veilring.deployment import back_up_state

    back_up_state(path, to)
    typer.echo(f"copied {path} to {to}")
