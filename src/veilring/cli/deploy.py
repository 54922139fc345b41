"""`veilring deploy`: all files of a small deployment, to try out on one machine.

The commands are made from the examples of `veilring.deployment.examples` when one of them is used:
an option is a field of the example, or a key of the system's table in the terms.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from veilring.cli.options import (
    FIRST_PORT,
    CellSeparator,
    LabelColumn,
    NewFolder,
    ProtocolName,
    ScenarioName,
    Settings,
    protocol_settings,
    table_settings,
    tidy,
)

if TYPE_CHECKING:
    from veilring.deployment.examples.example import Example

_TermsSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="TABLE.KEY=VALUE", help="Set a key of the terms; may be repeated."
    ),
]

_Compose = Annotated[
    bool,
    typer.Option(
        "--compose",
        help="Write a folder for each member, and a file for Docker Compose, to run in containers.",
    ),
]


class _Examples(TyperGroup):
    """A group whose commands are made when it is used."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        self._fill()
        return super().list_commands(ctx)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._fill()
        return super().get_command(ctx, cmd_name)

    def _fill(self) -> None:
        if self.commands:
            return
        from veilring.deployment.examples import EXAMPLES

        made = typer.Typer()
        made.command("peers")(_deploy_peers)
        for name, example in EXAMPLES.items():
            made.command(name)(_command_of(example))
        group: Any = typer.main.get_group(made)
        for command in group.commands.values():
            tidy(command)
        self.commands |= group.commands


deploy_app = typer.Typer(
    cls=_Examples,
    help="Write all files of a small deployment, to try it out on one machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@deploy_app.callback()
def _deploy() -> None:
    """Make this a group, although its commands come later."""


def _deploy_peers(
    scenario: ScenarioName,
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    protocol: ProtocolName = None,
    overrides: Settings = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Epsilon that each party may spend, if the system spends any. Default:"
            " the price of two answers."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and the partition.")] = 0,
    port: Annotated[
        int, typer.Option(help="Port of the first party; the others get the following ports.")
    ] = FIRST_PORT,
    compose: _Compose = False,
    out: NewFolder,
) -> None:
    """Write a trial deployment of parties that all hold rows.

    Each party gets the files that it would have on its own machine. Then start each party in its
    own terminal, and send queries:

        veilring deploy peers wine --set parties.count=3 --out ring
        veilring serve ring/party-0.toml        # and party-1, party-2
        veilring ask ring/client.toml ring/queries.csv

    Deploy any other system whose parties all hold rows in the same way, including one of another
    package:

        veilring deploy peers wine --protocol release --out release

    With `--set protocol.trusted=true` the deployment is a single owner of all rows.

    In production each party makes its own key (`veilring keys new`), and the ranges in terms.toml
    come from the possible values of each column, never from rows.
    """
    from functools import partial

    from veilring.cli.console import show_notes
    from veilring.data.table import partition
    from veilring.deployment.examples.peers import write_peers
    from veilring.scenarios import load_scenario
    from veilring.scenarios.prepare import load_rows

    given = [*protocol_settings(protocol), *table_settings(label, separator), *(overrides or ())]
    loaded = load_scenario(scenario, given)
    show_notes(loaded.data.source, **loaded.data.columns)
    how = loaded.partition
    parties = write_peers(
        load_rows(loaded.data),
        loaded.protocol,
        out,
        parties=loaded.parties.all,
        seed=seed,
        port=port,
        deal=partial(partition, kind=how.kind, alpha=how.alpha, sizes=how.sizes),
        test_share=loaded.data.test_share,
        queries=None if loaded.data.queries == "all" else loaded.data.queries,
        budget=budget,
    )
    lines = [f"serve {out / party}.toml" for party in parties]
    lines.append(f"ask {out / 'client.toml'} {out / 'queries.csv'}")
    _print_commands(out, lines, compose=compose)


def _print_commands(folder: Path, lines: Sequence[str], *, compose: bool) -> None:
    """Print the commands to try, after a division of the folder for containers, if wanted."""
    if compose:
        from veilring.deployment.compose import write_compose

        shown = write_compose(folder, lines)
    else:
        shown = tuple(f"veilring {line}" for line in lines)
    typer.echo("\n".join(shown))


def _command_of(example: "type[Example]") -> Callable[..., None]:
    """Return the command that writes an example, with its options and help."""
    from veilring.config import describe_keys
    from veilring.deployment.examples.example import NewDeployment

    own = example.model_fields
    reads_table = bool(example.draws)

    def command(**given: Any) -> None:
        settings = _settings_of(example, given)
        source: Any = Path(given["source"])
        made = example(**{name: given[name] for name in own})
        if reads_table:
            from veilring.cli.console import load_noting

            source = load_noting(
                given["source"],
                label=given["label"],
                separator=given["separator"],
                needs_label=made.needs_label,
            )
        to = NewDeployment(given["out"], given.get("seed", 0), given["port"], settings)
        _print_commands(given["out"], made.write(source, to), compose=given["compose"])

    argument = typer.Argument(help=example.source, metavar=example.metavar)
    options = [_parameter("source", str, argument)]
    if reads_table:
        options += [
            _parameter("label", LabelColumn, default=None),
            _parameter("separator", CellSeparator, default=","),
        ]
    for key in describe_keys(example):
        kind = own[key.name].annotation
        flag = [f"--{key.name}"] if kind is bool else []
        option = typer.Option(*flag, help=key.meaning, show_default=key.default is not None)
        options.append(_parameter(key.name, kind, option, default=key.default))
    options += _derived(example)
    options.append(_parameter("overrides", _TermsSettings, default=None))
    if reads_table:
        options.append(_parameter("seed", int, typer.Option(help=example.draws), default=0))
    options.append(_parameter("port", int, typer.Option(help=example.ports), default=FIRST_PORT))
    options.append(_parameter("compose", _Compose, default=False))
    options.append(_parameter("out", NewFolder))
    about = inspect.cleandoc(example.__doc__ or "").partition("\nAttributes:\n")[0]
    command.__doc__ = f"{about}\n{example.in_production}"
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # which Typer reads
    return command


def _parameter(
    name: str,
    kind: Any,  # noqa: ANN401  (a type, with or without what Typer says of it)
    says: object = None,
    default: object = inspect.Parameter.empty,
) -> inspect.Parameter:
    annotation = kind if says is None else Annotated[kind, says]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _derived(example: "type[Example]") -> list[inspect.Parameter]:
    """Return an option for each key of the system's table that is not a field of the example."""
    from veilring.config import describe_keys

    hidden = {"name", *example.model_fields}  # each of its systems has one name
    keys = () if example.section is None else describe_keys(example.section)
    return [
        _parameter(
            key.name,
            str | None,
            typer.Option(
                metavar="VALUE",
                help=f"{key.meaning} Allowed: {key.allowed}. Default: {key.default_text}.",
            ),
            default=None,
        )
        for key in keys
        if key.name not in hidden
    ]


def _settings_of(example: "type[Example]", given: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the terms that the options set."""
    from veilring.config import set_key

    settings = dict[str, Any]()
    for parameter in _derived(example):
        if given[parameter.name] is not None:
            set_key(settings, f"protocol.{parameter.name}={given[parameter.name]}")
    for setting in given["overrides"] or ():
        set_key(settings, setting)
    return settings
