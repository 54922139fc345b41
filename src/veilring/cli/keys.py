"""`veilring keys`: a key for each party, and the roster that names them all."""

import datetime as dt
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.cli.options import FIRST_PORT

if TYPE_CHECKING:
    from veilring.transport.identity import Identity
    from veilring.transport.roster import Member, Roster

keys_app = typer.Typer(
    help="Make keys and rosters. Each party makes its own key and shares only the public part.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@keys_app.command("new")
def make_key(
    names: Annotated[
        list[str],
        typer.Argument(help="Name of each party.", metavar="NAME", show_default=False),
    ],
    *,
    host: Annotated[
        str,
        typer.Option(help="Host name or address at which others reach the party; not for clients."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port of the first party; the others get the following ports.")
    ] = FIRST_PORT,
    client: Annotated[
        bool, typer.Option("--client", help="Make clients instead of parties.")
    ] = False,
    days: Annotated[int, typer.Option(help="Validity of the certificate, in days.")] = 365,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path(),
) -> None:
    """Make a party's private key, and the public part to send to the others.

    Writes NAME.key, which must stay on its machine, and NAME.member.toml. Compare the printed
    fingerprint with the other parties over a separate channel, such as the telephone: every party
    trusts the keys in the roster.

    Several names make several parties, to try a deployment on one machine. If a name is not
    allowed or has files already, nothing is written.

    For example:

        veilring keys new ada --host ada.example

        veilring keys new ada bob cyd --port 7311
    """
    from veilring.transport.identity import make_identity
    from veilring.transport.roster import Member

    _require_distinct(names)
    identities = [make_identity(name, valid_days=days) for name in names]
    members = [
        Member.of(each, kind="client") if client else Member.of(each, host, port + place)
        for place, each in enumerate(identities)
    ]
    out.mkdir(parents=True, exist_ok=True)
    for member, (key, public) in zip(members, _save(identities, members, out), strict=True):
        typer.echo(f"{key}: the private key; keep it on this machine")
        typer.echo(f"{public}: the public part; send it to the person who makes the roster")
        typer.echo(f"fingerprint {member.fingerprint}")


def _require_distinct(names: list[str]) -> None:
    from veilring.errors import InputError

    for name in names:
        if names.count(name) > 1:
            raise InputError.because(f"{name} is given twice; name each party once", field="names")


def _save(
    identities: "list[Identity]", members: "list[Member]", folder: Path
) -> list[tuple[Path, Path]]:
    """Write the private and the public file of each party, or no file at all; return the paths."""
    from veilring.errors import InputError
    from veilring.transport.identity import save_identity
    from veilring.transport.roster import Roster

    saved = []
    with ExitStack() as undo:
        for identity, member in zip(identities, members, strict=True):
            public = folder / f"{member.name}.member.toml"
            if public.exists():
                raise InputError("path", public, "a file that does not exist yet")
            key = save_identity(identity, folder)
            undo.callback(key.unlink)
            undo.callback(public.unlink, missing_ok=True)
            Roster((member,)).save(public)
            saved.append((key, public))
        undo.pop_all()
    return saved


@keys_app.command("roster")
def make_roster(
    members: Annotated[
        list[Path],
        typer.Argument(help="Public parts (.member.toml) of all members.", metavar="MEMBER.TOML"),
    ],
    *,
    previous: Annotated[
        Path | None,
        typer.Option(
            metavar="ROSTER.TOML", help="Roster to replace, with previous keys of members."
        ),
    ] = None,
    until: Annotated[
        dt.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Last day (UTC) of the previous keys."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")] = Path("roster.toml"),
) -> None:
    """Combine public parts into the roster that all parties use.

    The order of the arguments is the order of the roster. Compare the printed hash: it is equal for
    equal rosters, and parties with different rosters refuse each other.

    To change keys while the parties run, give the roster that the new one replaces with --previous,
    and the last day on which its keys are accepted with --until.
    """
    from veilring.errors import InputError
    from veilring.transport.roster import Roster

    if out.exists():
        raise InputError("--out", out, "a file that does not exist yet")
    whole = Roster(tuple(member for path in members for member in _load(path).members))
    if (previous is None) != (until is None):
        raise InputError.because("give --previous and --until together", field="--previous")
    if previous and until:
        whole = whole.replacing(_load(previous), until.date(), _today())
    whole.save(out)
    _describe(whole)


@keys_app.command("show")
def show_roster(
    path: Annotated[Path, typer.Argument(help="Roster file.", metavar="ROSTER.TOML")],
) -> None:
    """Print the members of a roster, the ends of their certificates, and the roster's hash."""
    _describe(_load(path))


def _load(path: Path) -> "Roster":
    from veilring.config import missing_file
    from veilring.errors import InputError
    from veilring.transport.roster import Roster

    try:
        return Roster.load(path)
    except FileNotFoundError as error:
        raise missing_file(path, "roster") from error
    except OSError as error:
        raise InputError("roster", path, f"a file that can be read ({error})") from error


def _describe(whole: "Roster") -> None:
    today = _today()
    for member in whole.members:
        place = f"{member.host}:{member.port}" if member.host else "client"
        until = f"valid until {member.expires:%Y-%m-%d}"
        typer.echo(f"{member.name:20} {place:24} {member.fingerprint} {until}")
        if member.accepts_previous(today):
            until = f"accepted until {member.previous_until}"
            typer.echo(f"{'':20} {'previous key':24} {member.previous_fingerprint} {until}")
    typer.echo(f"roster {whole.hashes(today)[0].hex()}")


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()
