"""`veilring audit`: a verdict for each claim of a system or of a role."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from veilring.cli.options import AsJson, RandomSeed, Workers
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.testing.auditing import Audit, RoleClaims
    from veilring.testing.auditing.audits import Subject

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
    from veilring.protocols.claims import EXAMPLE_PARTIES
    from veilring.testing.auditing import audit
    from veilring.testing.auditing.page import require_fresh, write_audit

    subject = _find(name, parameters or [])
    if out is not None:
        require_fresh(out)
    with show_progress(quiet=as_json) as progress:
        found = audit(
            subject,
            quick=quick,
            parties=EXAMPLE_PARTIES if parties is None else parties,
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


def _find(name: str, settings: list[str]) -> "Subject":
    """Return the system or the claims that a name denotes, with the given parameters."""
    from veilring.config import did_you_mean
    from veilring.protocols.registry import find_system, system_names
    from veilring.protocols.system import System
    from veilring.testing.auditing import RoleClaims

    names = system_names()
    if ":" not in name and name not in names:
        hint = did_you_mean(name, names)
        raise InputError("name", name, f"{', '.join(names)}, or module:NAME{hint}")
    found: Any = _import(name) if ":" in name else find_system(name)
    if isinstance(found, type) and issubclass(found, System):
        return found(**dict(map(_parameter, settings)))
    if isinstance(found, System):
        return found.replaced(**dict(map(_parameter, settings)))
    if isinstance(found, RoleClaims):
        return _without_settings(found, settings)
    raise InputError.because(
        f"{name} is neither a System nor a RoleClaims; to audit a role, describe its claims with"
        " veilring.testing.auditing.RoleClaims",
        field="name",
    )


def _without_settings(found: "RoleClaims", settings: list[str]) -> "RoleClaims":
    if settings:
        raise InputError.because("a role has no parameters; leave out --set", field="--set")
    return found


def _import(name: str) -> object:
    """Return an object by its module and its name; modules are looked for here as well."""
    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        raise InputError("name", name, f"module:NAME, such as {Path(module).stem}:{attribute}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError.because(f"{name} cannot be imported: {error}", field="name") from error


def _parameter(setting: str) -> tuple[str, object]:
    from veilring.config import parse_value

    key, equals, value = setting.partition("=")
    if not equals:
        raise InputError("--set", setting, "KEY=VALUE, such as epsilon=2")
    return key.strip(), parse_value(value)


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
