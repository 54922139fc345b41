"""`veilring keys`: a key for each party, and the roster that names them all."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veilring.transport.roster import Roster

keys_app = typer.Typer(
    help="Make keys and rosters. Each party makes its own key; only public parts are exchanged.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@keys_app.command("new")
def make_key(
    name: Annotated[str, typer.Argument(help="What the party is called.", show_default=False)],
    *,
    host: Annotated[
        str, typer.Option(help="Where others reach it; a client is not reached.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port that it listens at.")] = 7311,
    client: Annotated[bool, typer.Option("--client", help="Make a client and no party.")] = False,
    days: Annotated[int, typer.Option(help="For how long its certificate is good.")] = 365,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path(),
) -> None:
    """Make a party's key, and the public part to send to all others.

    Writes NAME.key, which never leaves its machine, and NAME.member.toml. Compare the fingerprint
    that it prints with the others by telephone: the roster vouches for the keys that are in it.
    """
    from veilring.transport.identity import make_identity, save_identity
    from veilring.transport.roster import Member, Roster

    identity = make_identity(name, valid_days=days)
    member = Member.of(identity, kind="client") if client else Member.of(identity, host, port)
    out.mkdir(parents=True, exist_ok=True)
    key = save_identity(identity, out)
    public = out / f"{name}.member.toml"
    Roster((member,)).save(public)
    typer.echo(f"{key}: the private key; it stays here")
    typer.echo(f"{public}: the public part; send it to the person who makes the roster")
    typer.echo(f"fingerprint {member.fingerprint}")


@keys_app.command("roster")
def make_roster(
    members: Annotated[
        list[Path], typer.Argument(help="The public parts of all.", metavar="MEMBER.TOML...")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write.")] = Path(
        "roster.toml"
    ),
) -> None:
    """Put public parts together into the roster that all parties hold.

    Their order is the order of the roster. The hash that it prints is the same wherever the same
    roster is: parties with different rosters refuse each other.
    """
    from veilring.errors import InputError
    from veilring.transport.roster import Roster

    if out.exists():
        raise InputError("--out", out, "a file that does not exist yet")
    whole = Roster(tuple(member for path in members for member in _load(path).members))
    whole.save(out)
    _describe(whole)


@keys_app.command("show")
def show_roster(
    path: Annotated[Path, typer.Argument(help="A roster.", metavar="ROSTER.TOML")],
) -> None:
    """Print the members of a roster, and its hash."""
    _describe(_load(path))


def _load(path: Path) -> "Roster":
    from veilring.errors import InputError
    from veilring.transport.roster import Roster

    try:
        return Roster.load(path)
    except OSError as error:
        raise InputError("roster", path, f"a file that can be read ({error})") from error


def _describe(whole: "Roster") -> None:
    for member in whole.members:
        place = f"{member.host}:{member.port}" if member.host else "client"
        typer.echo(f"{member.name:20} {place:24} {member.fingerprint}")
    typer.echo(f"roster {whole.hash.hex()}")
