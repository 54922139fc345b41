"""`veilring audit`: a verdict for each claim of a system or of a role."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from veilring.cli.options import AsJson, RandomSeed, Workers

if TYPE_CHECKING:
    from veilring.testing.auditing import Audit

EXIT_CONTRADICTED: Final = 1


def audit_command(
    name: Annotated[
        str,
        typer.Argument(
            help="A system (see `veilring systems`), or module:NAME with a system or a RoleClaims.",
            metavar="NAME",
            show_default=False,
        ),
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a shorter audit: about 20 s on two cores.")
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a parameter of the system; may be repeated.",
            show_default=False,
        ),
    ] = None,
    parties: Annotated[
        int | None,
        typer.Option(help="Number of parties that hold rows. Default: 3.", show_default=False),
    ] = None,
    coalition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Parties whose pooled views to examine, such as party-1,party-2; may be repeated."
            " Default: the first parties; without --quick, parties in all places.",
            show_default=False,
        ),
    ] = None,
    seed: RandomSeed = 0,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write audit.html and audit.json to this folder, which must not exist yet.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run all audits of a system, and print a verdict for each of its claims.

    The claims cover cost, labels, the information in views, ε, budgets, and the behaviour under
    faults and with malicious parties. The exit code is 0 if no claim is contradicted, and 1
    otherwise. If all claims are true, the audit contradicts one of them with a probability of at
    most 1e-6.

    For example:

        veilring audit release --quick

        veilring audit private-knn --out audits/ring

        veilring audit my_module:MySystem --set epsilon=2 --json
    """
    from veilring.cli.console import show_progress
    from veilring.cli.subjects import find_subject
    from veilring.protocols.claims import EXAMPLE_PARTIES
    from veilring.testing.auditing import audit
    from veilring.testing.auditing.page import require_fresh, write_audit

    subject = find_subject(name, parameters or [])
    if out is not None:
        require_fresh(out)
    with show_progress(quiet=as_json) as progress:
        found = audit(
            subject,
            quick=quick,
            parties=EXAMPLE_PARTIES if parties is None else parties,
            coalitions=[each.split(",") for each in coalition or []],
            seed=seed,
            workers=workers,
            progress=progress,
        )
    if out is not None:
        write_audit(found, out)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        _show(found)
    if found.contradicted:
        raise typer.Exit(EXIT_CONTRADICTED)


def _show(audit: "Audit") -> None:
    from rich.table import Table

    from veilring.cli.console import make_console
    from veilring.testing.auditing.page import outcome, setting

    table = Table(title=f"Audit of {audit.title}", title_justify="left")
    for heading in ("claim", "verdict", "finding"):
        table.add_column(heading)
    for claim in audit.claims:
        power = f"\n{claim.power}" if claim.power else ""
        table.add_row(claim.claim, claim.verdict, f"{claim.finding}{power}", end_section=True)
    console = make_console()
    console.print(table)
    for line in (outcome(audit), setting(audit)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
