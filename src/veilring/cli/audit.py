"""`veilring audit` and `explore`: test the claims of a system or role, and search for faults."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from veilring.cli.options import (
    AsJson,
    ProtocolName,
    RandomSeed,
    Settings,
    Workers,
    protocol_settings,
)
from veilring.config import did_you_mean, parse_value
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.protocols.system import System
    from veilring.scenarios import RoleScenario, Scenario
    from veilring.testing.auditing import Audit, RoleClaims
    from veilring.testing.exploring import Campaign, Subject

DEFAULT: Final = "faults"
"""The scenario without a name, and that of a system of the user's own."""
_SMALLEST: Final = ("parties.count=3", "data.queries=1")
_KEYS: Final = "protocol."


def explore_command(
    scenario: Annotated[
        str,
        typer.Argument(
            help="A built-in scenario, such as faults, a path to a .toml file, or module:NAME with"
            " a system or a RoleClaims."
        ),
    ] = DEFAULT,
    *,
    protocol: ProtocolName = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 200,
    first: Annotated[int, typer.Option(help="First seed.", min=0)] = 0,
    seed: Annotated[int | None, typer.Option(help="Replay only this seed.", min=0)] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--every-message",
            help="Instead of exploring seeds, apply each class of fault to each message of a run"
            " among three parties.",
        ),
    ] = False,
    stores: Annotated[
        bool,
        typer.Option(
            "--stores",
            help="Instead of protocols, test ledgers, collectors and records on failing disks.",
        ),
    ] = False,
    failures: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Replay the seeds in this file first, and add new failures to it."
        ),
    ] = None,
    shrink: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Shrink the first failing world, and write it as a scenario to this file.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Shrink the first failing world, replay it, and write the run to"
            " this folder, with the page report.html.",
        ),
    ] = None,
    workers: Workers = None,
    overrides: Settings = None,
) -> None:
    """Run protocols under random faults, seed after seed, and look for wrong results and hangs.

    Each seed makes a simulated world: random links, a schedule of stalls, delays, partitions,
    resets, half-open connections, crashes (also between two messages of one step), restarts, pauses
    and skewed clocks, and an order in which tasks take turns. The protocol of a scenario runs
    repeatedly in this world. Five invariants are checked: no party ever has a wrong result, each
    failure is a named error, every run ends soon after the faults stop, no task is left over, and
    the same seed makes the same world.

    The command fails if any check fails, if a class of fault never had an effect, or if a situation
    that is marked with `sometimes` never occurred.

    A system of your own, named as module:NAME, is explored in the scenario faults. For a role of
    your own, name a RoleClaims, or a scenario with its name as `role`.

    For example:

        veilring explore --seeds 20000

        veilring explore --seed 1234

        veilring explore --protocol rank-search --report worlds/first

        veilring explore my_module:CLAIMS --shrink world.toml
    """
    from veilring.cli.console import show_progress
    from veilring.scenarios.reporting import open_folder
    from veilring.scenarios.schema import names_object
    from veilring.testing.exploring import (
        explore_every_world,
        explore_subject,
        known_failures,
        remember_failures,
    )
    from veilring.testing.exploring.stores import STORES, explore_stores

    if _names_system(scenario):
        _refuse_for_systems({"--protocol": protocol, "--shrink": shrink, "--report": report})
    if report is not None:
        open_folder(report, "--report")  # refused before anything is explored
    settings = [*protocol_settings(protocol), *(overrides or ())]
    if stores:
        campaign = explore_stores(STORES, range(first, first + seeds))
        _judge(campaign)
        _require_reached("these classes of fault never struck", campaign.missing)
        return
    subject = _find(scenario, settings, smallest=every)
    if every:
        campaign = explore_every_world(subject)
        _judge(campaign, shrink, report, always_shrink=names_object(scenario))
        return
    known = known_failures(failures) if failures is not None else []
    chosen = [seed] if seed is not None else [*known, *range(first, first + seeds)]
    distinct = list(dict.fromkeys(chosen))
    with show_progress(quiet=False) as progress:

        def tell(campaign: "Campaign") -> None:
            if progress is not None:
                progress("Exploring", campaign.seeds, len(distinct))

        campaign = explore_subject(subject, distinct, workers=workers, progress=tell)
    if failures is not None:
        remember_failures(failures, campaign.failures)
    given = "".join(f" --set {setting!r}" for setting in settings)
    replay = f"replay: veilring explore {scenario} --seed {{}}{given}"
    _judge(campaign, shrink, report, advice=replay, always_shrink=names_object(scenario))
    if seed is None:
        if not campaign.succeeded:
            typer.echo("\nno run had a result: something fails even without faults", err=True)
            raise typer.Exit(1)
        _require_reached("these classes of fault never had an effect", campaign.missing)
        _require_reached("these situations never occurred", campaign.unreached)


def _names_system(name: str) -> bool:
    """Return whether a name denotes a system as `module:NAME`."""
    from veilring.protocols.system import System
    from veilring.scenarios.roles import import_object
    from veilring.scenarios.schema import names_object

    found = import_object(name) if names_object(name) else None
    return isinstance(found, System) or (isinstance(found, type) and issubclass(found, System))


def _refuse_for_systems(options: dict[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            raise InputError.because(
                f"{option} needs a scenario; leave it out for a system named as module:NAME, whose"
                " smallest failing world is printed",
                field=option,
            )


def _find(name: str, settings: list[str], *, smallest: bool) -> "Subject":
    """Return the system or the role of a scenario, or the user's own system."""
    from veilring.protocols.system import System
    from veilring.scenarios.schema import RoleScenario, load_experiment, load_scenario
    from veilring.testing.exploring import SystemSubject
    from veilring.testing.exploring.subjects import subject_of

    first = _SMALLEST if smallest else ()
    if not _names_system(name):
        loaded = load_experiment(name, settings)
        is_whole = isinstance(loaded, RoleScenario) or not smallest
        return subject_of(loaded if is_whole else load_scenario(name, [*first, *settings]))
    parameters = [each.removeprefix(_KEYS) for each in settings if each.startswith(_KEYS)]
    others = [each for each in settings if not each.startswith(_KEYS)]
    found = find_subject(name, parameters)
    assert isinstance(found, System)  # noqa: S101  (for mypy: it names a system)
    return SystemSubject.of(found, load_scenario(DEFAULT, [*first, *others]))


def _judge(
    campaign: "Campaign",
    shrink: Path | None = None,
    report: Path | None = None,
    *,
    advice: str = "",
    always_shrink: bool = False,
) -> None:
    """Show the findings, and fail if anything went wrong."""
    _show_explored(campaign)
    if not campaign.failures:
        return
    worst, wrong = next(iter(campaign.failures.items()))
    typer.echo(f"\nseed {worst} failed:", err=True)
    for sentence in wrong:
        typer.echo(f"  {sentence}", err=True)
    if advice:
        typer.echo(advice.format(worst), err=True)
    if always_shrink or shrink is not None or report is not None:
        _write_smallest(campaign, shrink, report)
    raise typer.Exit(1)


def _write_smallest(campaign: "Campaign", scenario: Path | None, report: Path | None) -> None:
    from veilring.privacy.files import write_whole
    from veilring.testing.exploring.subjects import to_scenario, to_toml

    smallest = campaign.smallest()
    if smallest is None:
        typer.echo(
            "the replay did not fail: this seed does not always make the same world", err=True
        )
        return
    typer.echo(f"smallest failing world (after {smallest.plays} runs): {smallest}", err=True)
    if scenario is not None:
        write_whole(scenario, to_toml(smallest.subject, smallest.world))
        typer.echo(f"run it: veilring run {scenario}", err=True)
    if report is not None:
        page = _write_page(to_scenario(smallest.subject, smallest.world), report)
        typer.echo(f"step through it: {page}", err=True)


def _write_page(world: "Scenario | RoleScenario", folder: Path) -> Path:
    """Replay a failing world, write its folder, and return the path of its page."""
    from veilring.errors import WorldWentWrong
    from veilring.nodes.journal import Journal
    from veilring.privacy.files import write_whole
    from veilring.scenarios.reporting import read_folder, write_failure
    from veilring.scenarios.reporting.page import render
    from veilring.testing.exploring.subjects import replay

    journal = Journal()
    try:
        replay(world, journal=journal)
    except WorldWentWrong as error:
        write_failure(error, world, journal, folder)
    page = folder / "report.html"
    write_whole(page, render(read_folder(folder)))
    return page


def _require_reached(said: str, missing: tuple[str, ...]) -> None:
    if missing:
        typer.echo(f"\n{said}: {', '.join(missing)}", err=True)
        raise typer.Exit(1)


def _show_explored(campaign: "Campaign") -> None:
    from veilring.testing.exploring import RoleSubject

    runs = campaign.succeeded + campaign.failed
    typer.echo(
        f"seeds: {campaign.seeds:,}, of which {len(campaign.failures):,} went wrong; "
        f"runs: {runs:,}, of which {campaign.succeeded:,} had a result and "
        f"{campaign.failed:,} a named error"
    )
    if campaign.subject is not None and not campaign.subject.knows_results:
        typer.echo(
            "the system does not say which labels are right: only their validity and agreement were"
            " checked"
        )
    if isinstance(campaign.subject, RoleSubject):
        typer.echo(
            "all runs had the same inputs: state that a party keeps from one run to the next may be"
            " missed"
        )
    if campaign.failed:
        typer.echo("named errors are expected: a run that a fault stops must report an error")
    typer.echo("faults that had an effect:")
    for kind in campaign.classes:
        typer.echo(f"  {kind:10} {campaign.struck[kind]:>9,}")


EXIT_CONTRADICTED: Final = 1


def audit_command(
    name: Annotated[
        str,
        typer.Argument(
            help="A system (see `veilring systems`), or module:NAME with a system or a RoleClaims.",
            metavar="NAME",
        ),
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a shorter audit: about 20 s on two cores.")
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a parameter of the system; may be repeated."
        ),
    ] = None,
    parties: Annotated[
        int | None, typer.Option(help="Number of parties that hold rows. Default: 3.")
    ] = None,
    coalition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Parties whose pooled views to examine, such as party-1,party-2; may be repeated."
            " Default: the first parties; without --quick, parties in all places.",
        ),
    ] = None,
    seed: RandomSeed = 0,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write audit.html and audit.json to this folder, which must not exist yet.",
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
    from veilring.testing.auditing.findings import require_fresh, write_audit

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
    from veilring.testing.auditing.findings import outcome, setting

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


def find_subject(name: str, settings: list[str]) -> "System | RoleClaims":
    """Return the system or the claims that a name denotes, with the given parameters.

    Args:
        settings: Parameters of the system, each as `key=value`.
    """
    from veilring.protocols.registry import find_system, system_names
    from veilring.protocols.system import System
    from veilring.scenarios.roles import import_object
    from veilring.testing.auditing import RoleClaims

    names = system_names()
    if ":" not in name and name not in names:
        hint = did_you_mean(name, names)
        raise InputError("name", name, f"{', '.join(names)}, or module:NAME{hint}")
    found: Any = import_object(name) if ":" in name else find_system(name)
    if isinstance(found, type) and issubclass(found, System):
        return found(**dict(map(_parameter, settings)))
    if isinstance(found, System):
        return found.replaced(**dict(map(_parameter, settings)))
    if isinstance(found, RoleClaims):
        if settings:
            raise InputError.because("a role has no parameters; leave out --set", field="--set")
        return found
    raise InputError.because(
        f"{name} is neither a System nor a RoleClaims; describe a role, its inputs and its"
        " invariant with veilring.testing.auditing.RoleClaims",
        field="name",
    )


def _parameter(setting: str) -> tuple[str, object]:
    key, equals, value = setting.partition("=")
    if not equals:
        raise InputError("--set", setting, "KEY=VALUE, such as epsilon=2")
    return key.strip(), parse_value(value)
