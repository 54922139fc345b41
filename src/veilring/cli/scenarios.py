"""`veilring scenarios` and `veilring systems`: lists that write no file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

    from veilring.protocols.system import System

_QUERIES: Final = 100
"""The default number of queries of a forecast for a deployment: a usual file."""


def scenarios(
    name: Annotated[str | None, typer.Argument(help="Scenario whose file to print.")] = None,
) -> None:
    """List the built-in scenarios, or print one as a starting point for your own.

    To write your own:

        veilring scenarios wine > mine.toml

        veilring run mine.toml
    """
    from veilring.scenarios import load_scenario, scenario_names, scenario_text

    if name is not None:
        typer.echo(scenario_text(name), nl=False)
        return
    names = scenario_names()
    width = max(map(len, names))
    for each in names:
        typer.echo(f"{each:{width}}  {load_scenario(each).description}")


def systems(
    name: Annotated[str | None, typer.Argument(help="System to describe.")] = None,
    *,
    terms: Annotated[
        Path | None,
        typer.Option(
            "--terms", help="Terms of a deployment, whose guarantee and cost are shown instead."
        ),
    ] = None,
    parties: Annotated[
        int,
        typer.Option("--parties", min=1, help="Number of parties that hold rows, with --terms."),
    ] = 3,
    queries: Annotated[
        int, typer.Option("--queries", min=1, help="Number of queries in one file, with --terms.")
    ] = _QUERIES,
) -> None:
    """List the systems, or show the guarantee and the parameters of one.

    To run a system with a parameter of your choice:

        veilring systems

        veilring systems noisy-votes

        veilring run wine --protocol noisy-votes --set protocol.epsilon=2

    To show the guarantee and the cost of a deployment among three members:

        veilring systems --terms terms.toml --parties 3 --queries 30
    """
    from veilring.cli.console import make_console
    from veilring.protocols.registry import find_system

    console = make_console()
    if terms is not None:
        _print_deployment(console, terms, parties, queries)
        return
    if name is None:
        console.print(_all_systems())
        return
    system = find_system(name)
    chosen = next(key for key in _parameters(system) if key[1] != "none")
    example = f"veilring run wine --protocol {name} --set protocol.{chosen[0]}={chosen[1]}"
    promise = system().promise()
    for text in (f"{system.title}. {system.summary}\n", f"{promise}\n", promise.paragraph(name)):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    console.print(_grid(("parameter", "default", "allowed", "meaning"), _parameters(system)))
    console.print(f"\n    {example}", highlight=False, markup=False, soft_wrap=True)


def _print_deployment(console: "Console", path: Path, parties: int, queries: int) -> None:
    from veilring.deployment.config import TASK, read_terms

    said = _verified_sum(path) if TASK in read_terms(path) else _peers(path, parties, queries)
    for text in said:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _peers(path: Path, parties: int, queries: int) -> tuple[str, ...]:
    from veilring.deployment.peers import PeerTerms

    terms = PeerTerms.load(path, parties)
    system = terms.protocol
    cost = system.forecast_for(terms.facts(parties), queries)
    promise = terms.promise(parties)
    return (
        f"{system.title}. {system.summary}\n",
        str(promise),
        f"cost          {cost}; for {queries:,} queries among {parties} parties\n",
        promise.paragraph(system.name, budget=terms.budget),
    )


def _verified_sum(path: Path) -> tuple[str, ...]:
    from veilring.deployment.surveys.aggregators import VerifiedSumTerms

    terms = VerifiedSumTerms.load(path)
    batch = f"for a batch of {terms.task.minimum:,} reports, besides their uploads"
    return (
        str(terms.promise),
        f"cost          {terms.cost}; {batch}\n",
        terms.promise.paragraph(terms.protocol.name),
    )


def _all_systems() -> "Grid":
    """Return a table of all systems; a system that cannot be imported has the reason in its row."""
    from veilring.errors import InputError
    from veilring.protocols.registry import find_system, system_names

    rows = list[tuple[str, ...]]()
    for name in system_names():
        try:
            system = find_system(name)
        except InputError as error:
            rows.append((name, "", str(error), ""))
        else:
            rows.append((name, system.title, system.summary, system().promise().guarantee))
    return _grid(("name", "system", "description", "guarantee"), rows)


def _parameters(system: "type[System]") -> list[tuple[str, ...]]:
    from veilring.config import describe_keys

    keys = (key for key in describe_keys(system) if key.name != "name")
    return [(key.name, key.default_text, key.allowed, key.meaning) for key in keys]


def _grid(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> "Grid":
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(*head)
    for first, *others in rows:
        grid.add_row(Text(first, no_wrap=True), *map(Text, others))
    return grid
