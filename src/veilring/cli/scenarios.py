"""`veilring scenarios`: what can be run without writing anything."""

from typing import Annotated

import typer


def scenarios(
    name: Annotated[
        str | None, typer.Argument(help="Print the file of this scenario.", show_default=False)
    ] = None,
) -> None:
    """List the built-in scenarios, or print one as a start for your own.

    To write your own:

        veilring scenarios wine > mine.toml

        veilring run mine.toml
    """
    from veilring.scenarios import (
        load_scenario,
        scenario_names,
        scenario_text,
    )

    if name is not None:
        typer.echo(scenario_text(name), nl=False)
        return
    names = scenario_names()
    width = max(map(len, names))
    for each in names:
        typer.echo(f"{each:{width}}  {load_scenario(each).description}")
