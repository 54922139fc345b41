"""`veilring deploy ring`: all files of a small deployment, to try it on one machine."""

from typing import Annotated

import typer

from veilring.cli.options import CellSeparator, LabelColumn, NewFolder, Settings, table_settings


def ring(
    scenario: Annotated[str, typer.Argument(help="A built-in scenario or a path to a .toml file.")],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    overrides: Settings = None,
    seed: Annotated[int, typer.Option(help="Of the split and the partition.")] = 0,
    port: Annotated[
        int, typer.Option(help="The first party's port; the next has the next.")
    ] = 7311,
    out: NewFolder,
) -> None:
    """Write what each party of a scenario would hold on a machine of its own.

    Then start each party, in a terminal of its own, and ask them:

        veilring deploy ring wine --set parties.count=3 --out ring

        veilring serve ring/party-0.toml        # and party-1, party-2

        veilring ask ring/client.toml ring/queries.csv

    In earnest each party makes its own key (`veilring keys new`), and the ranges in terms.toml come
    from what a column can hold, not from anybody's rows.
    """
    from functools import partial

    from veilring.cli.console import show_notes
    from veilring.data import partition
    from veilring.deployment.examples import write_ring
    from veilring.errors import ScenarioError
    from veilring.protocols.ring.system import PrivateKNN
    from veilring.scenarios import load_scenario
    from veilring.scenarios.prepare import load_rows

    loaded = load_scenario(scenario, [*table_settings(label, separator), *(overrides or ())])
    show_notes(loaded.data.source, loaded.data.label, loaded.data.separator)
    how, system = loaded.partition, loaded.protocol
    if not isinstance(system, PrivateKNN):
        raise ScenarioError("protocol.name", system.name, "private-knn, for a ring")
    parties = write_ring(
        load_rows(loaded.data),
        system,
        out,
        parties=loaded.parties.all,
        seed=seed,
        port=port,
        deal=partial(partition, kind=how.kind, alpha=how.alpha, sizes=how.sizes),
        test_share=loaded.data.test_share,
        queries=None if loaded.data.queries == "all" else loaded.data.queries,
    )
    for party in parties:
        typer.echo(f"veilring serve {out / party}.toml")
    typer.echo(f"veilring ask {out / 'client.toml'} {out / 'queries.csv'}")
