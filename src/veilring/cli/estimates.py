"""What a collection says, for a person or a program: shared by the commands that estimate."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from veilring.deployment.estimating import Estimates
    from veilring.deployment.survey import CollectorConfig

ConfigPath: TypeAlias = Annotated[
    Path, typer.Argument(help="The collector's configuration.", metavar="CONFIG")
]
Confidence: TypeAlias = Annotated[
    float, typer.Option(help="Of each interval by itself, between 0 and 1.")
]
SaveTo: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the naive Bayes model here, as JSON."),
]
Consistent: TypeAlias = Annotated[
    str, typer.Option(help="Of the model: paper, clip or norm-sub, for counts below 0.")
]
Without: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MEMBER",
        help="Leave out what this member has sent; may be given many times.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def load_collector(config: Path, command: str) -> "CollectorConfig":
    """Read a collector's configuration.

    Raises:
        ScenarioError: If it does not fit, or is another role's; it names the command.
    """
    from veilring.deployment import load_config_of
    from veilring.deployment.survey import CollectorConfig

    return load_config_of(config, CollectorConfig, f"veilring {command}")


def say_saved(path: Path | None, *, json: bool) -> None:
    """Say where the model was written, if it was."""
    if path is not None and not json:
        typer.echo(f"model: {path}")


def show_estimates(found: "Estimates", *, json: bool) -> None:
    """Print estimates as a table, or as JSON."""
    if json:
        _print_json(found)
    else:
        _show(found)


def _print_json(found: "Estimates") -> None:
    import dataclasses
    from json import dumps

    document = {
        "task": found.terms.task.digest.hex(),
        "epsilon": found.terms.task.survey.exact_epsilon,
        "reports": found.tally.clients,
        "members": dict(found.members),
        "without": list(found.without),
        "confidence": found.confidence,
        "estimates": [
            {name: _finite(value) for name, value in dataclasses.asdict(line).items()}
            for line in found.lines
        ],
    }
    typer.echo(dumps(document, indent=2, allow_nan=False))


def _finite(value: object) -> object:
    """Return a value, or none for an infinity: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(found: "Estimates") -> None:
    from rich.table import Table

    from veilring.cli.console import make_console

    epsilon = found.terms.task.survey.exact_epsilon
    title = f"{found.terms.survey.kind}: {found.tally.clients:,} reports, epsilon {epsilon:g}"
    table = Table(title=title, title_justify="left")
    for name in ("of", "value", "class"):
        table.add_column(name, overflow="fold")
    for name in ("estimate", f"{found.confidence:.0%} interval", "reports"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in found.lines:
        interval = f"{line.low:.4f} to {line.high:.4f}{' ~' if line.rough else ''}"
        numbers = (f"{line.estimate:.4f}", interval, f"{line.clients:,}")
        table.add_row(line.of, line.value, line.within, *numbers)
    make_console().print(table, markup=False)
    if found.members:
        counted = (f"{name} {count:,}" for name, count in found.members.items())
        typer.echo(f"stored by member: {', '.join(counted)}")
    if found.without:
        typer.echo(f"left out: {', '.join(found.without)}")
    rough = sum(line.rough for line in found.lines)
    if rough:
        typer.echo(f"~ {rough:,} intervals rest on too few reports to hold their confidence")
