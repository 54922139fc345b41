"""`veilring trail`: show, verify and export what a party has answered."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from veilring.cli.options import AsJson, ConfigFile, group_of
from veilring.errors import InputError

_Source = Annotated[
    Path,
    typer.Argument(
        help="Configuration of the party, its state file, or an export.", metavar="CONFIG|FILE"
    ),
]
_CONFIG: str = ".toml"

trail_app = group_of("Show, verify or export the signed trail of what a party has answered.")


@trail_app.command("show")
def show_trail(
    source: _Source,
    *,
    client: Annotated[str, typer.Option(metavar="NAME", help="Only entries of this client.")] = "",
    salt: Annotated[
        int, typer.Option(metavar="NUMBER", help="Print the salt of this entry instead.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the entries of a trail: each request, the decision, its price, the peers, the answer.

    You can run this while the party is running. It does not check the signatures; `veilring trail
    verify` does. Entries have no rows, queries or labels. An answer is shown as a hash; with the
    salt of its entry, which only the party has, others can compare an answer with it.

    For example:

        veilring trail show ada.toml --client clerk
        veilring trail show ada.toml --salt 17
    """
    from veilring.deployment.trail import read_salt, read_trail

    path = _file_of(source)
    if salt:
        typer.echo(read_salt(path, salt).hex())
        return
    with read_trail(path) as lines:
        entries = [each for each in _entries(lines) if not client or each.get("client") == client]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    for entry in entries:
        typer.echo(_sentence(entry))


@trail_app.command("verify")
def verify_command(
    source: _Source,
    *,
    roster: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Roster with a key of the party; may be repeated. Default: the configuration's.",
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPORT", help="Earlier export, whose entries the trail must still have."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no entry of a trail was changed, removed, inserted or moved.

    The check needs only the trail and the roster, so anyone with an export can make it. A state
    file is checked for lost transactions, too.

    Exit codes: 0 the trail is complete and unchanged; 1 it is not; 2 the state file itself is
    missing, damaged or incomplete.

    For example:

        veilring trail verify ada.toml
        veilring trail verify ada-june.jsonl --roster roster.toml --earlier ada-may.jsonl
    """
    from veilring.deployment import load_config
    from veilring.deployment.config import load_credentials
    from veilring.deployment.trail import is_state, read_trail, verify_trail
    from veilring.errors import StoreFailed
    from veilring.transport.roster import Roster

    path, name, rosters = _file_of(source), "", [Roster.load(each) for each in roster or ()]
    if source.suffix == _CONFIG:
        identity, own = load_credentials(load_config(source))
        name, rosters = identity.name, rosters or [own]
    if not rosters:
        raise InputError.because("give the roster with the key of the party", field="--roster")
    before = list[str]()
    if earlier is not None:
        with read_trail(earlier) as lines:
            before = list(lines)
        verify_trail(before, rosters, is_export=True)
    with read_trail(path) as lines:
        every = list(lines)  # a reader must not delay the party while it checks signatures
    found = verify_trail(every, rosters, is_export=not is_state(path), earlier=before)
    if name not in {"", found.party}:
        message = f"it is the trail of {found.party}, not of {name}"
        raise StoreFailed(message)
    if as_json:
        typer.echo(json.dumps(found._asdict(), indent=2))
        return
    typer.echo(f"complete and unchanged: {found.entries:,} entries of {found.party}")
    since, until, state = map(_said, (found.since, found.until, found.state))
    typer.echo(f"from {since} to {until}, state {state}")
    typer.echo(f"last entry {found.head}, keys {', '.join(found.keys)}")


@trail_app.command("export")
def export_command(
    config: ConfigFile, to: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")]
) -> None:
    """Write a trail to one file, which anyone with the roster can verify.

    The file has one JSON object on each line. Its last line is signed over all others, so that an
    entry that is missing at the end is found, too. You can run this while the party is running.

    For example:

        veilring trail export ada.toml ada-2026.jsonl
    """
    from veilring.deployment import load_config
    from veilring.deployment.config import load_credentials
    from veilring.deployment.trail import export_trail
    from veilring.transport.roster import utc_now

    identity, roster = load_credentials(load_config(config))
    found = export_trail(_file_of(config), to, identity, roster, utc_now())
    typer.echo(f"wrote {found.entries:,} entries of {found.party} to {to}")


def _file_of(source: Path) -> Path:
    """Return the state file or the export."""
    from veilring.deployment import load_config
    from veilring.deployment.config import StateConfig

    if source.suffix != _CONFIG:
        return source
    config = load_config(source)
    if not isinstance(config, StateConfig):
        raise InputError.because(f"a party of the role {config.role} keeps no trail", field="role")
    return Path(config.state)


def _entries(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    try:
        yield from (dict(json.loads(line)) for line in lines)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError.because(
            f"it has a line that is no entry ({error})", field="trail"
        ) from error


def _sentence(entry: Mapping[str, Any]) -> str:
    """Return an entry in one line of text."""
    hidden = {"number", "time", "kind", "previous", "signature", "vouched"}
    shown = {key: value for key, value in entry.items() if key not in hidden}
    words = [_said(entry.get(key, "")) for key in ("number", "time", "kind")]
    return " ".join([*words, *(f"{_said(key)}={_said(value)}" for key, value in shown.items())])


def _said(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_said, value))
    is_plain = str(value).isprintable()  # an export may be anything
    is_word = is_plain and isinstance(value, str) and " " not in value
    return str(value) if is_word else json.dumps(value, ensure_ascii=not is_plain)
