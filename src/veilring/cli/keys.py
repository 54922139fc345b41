"""`veilring keys`: a key for each party, and the roster that names them all."""

import datetime as dt
import os
import shutil
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from veilring.cli.options import FIRST_PORT, group_of

if TYPE_CHECKING:
    from veilring.transport.roster import Identity, Member, Roster

_DRAFT: Final = ".keys-draft-"
_COMPLETE: Final = ".keys-complete-"
"""The beginnings of the names of the hidden folder in which keys are written, before and after."""

keys_app = group_of(
    "Make keys and rosters. Each party makes its own key and shares only the public part."
)


@keys_app.command("new")
def make_key(
    names: Annotated[list[str], typer.Argument(help="Name of each party.", metavar="NAME")],
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
    allowed or has files already, nothing is written. If the command is killed, it has written
    nothing, or the next `veilring keys new` in that folder completes its files.

    For example:

        veilring keys new ada --host ada.example

        veilring keys new ada bob cyd --port 7311
    """
    from veilring.transport.roster import Member, make_identity

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
    """Write the private and the public file of each party, or no file at all; return the paths.

    The files are written into a hidden folder. Once that has its final name they are complete, and
    if the process is killed, the next call links the others.
    """
    import tempfile

    from veilring.errors import InputError
    from veilring.privacy.files import sync_folder, write_whole
    from veilring.transport.roster import Roster, save_identity

    for complete in folder.glob(f"{_COMPLETE}*"):
        _link(complete, folder)
    saved = [(folder / f"{each.name}.key", folder / f"{each.name}.member.toml") for each in members]
    for path in chain.from_iterable(saved):
        if path.exists():
            raise InputError("path", path, "a file that does not exist yet")
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=_DRAFT))  # for its owner only
    complete = folder / draft.name.replace(_DRAFT, _COMPLETE, 1)
    try:
        for identity, member in zip(identities, members, strict=True):
            save_identity(identity, draft)
            write_whole(draft / f"{member.name}.member.toml", Roster((member,)).to_toml())
        sync_folder(draft)
        draft.rename(complete)
    except BaseException:
        shutil.rmtree(draft)
        raise
    _link(complete, folder)
    return saved


def _link(complete: Path, folder: Path) -> None:
    """Give the files of a complete set their names in the folder; nothing is overwritten."""
    from veilring.errors import InputError
    from veilring.privacy.files import sync_folder

    for file in sorted(complete.iterdir()):
        path = folder / file.name
        try:
            os.link(file, path)
        except FileExistsError:
            if not path.samefile(file):
                raise InputError.because(
                    f"{path} is not {file}, which an interrupted `veilring keys new` has made; "
                    "remove the one that you do not need",
                    field="path",
                ) from None
    sync_folder(folder)
    shutil.rmtree(complete)


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
    now = dt.datetime.now(dt.UTC)
    today = now.date()
    for member in whole.members:
        place = f"{member.host}:{member.port}" if member.host else "client"
        days = f"days left: {member.days_left(now)}"
        until = f"valid until {member.expires:%Y-%m-%d} ({days})"
        typer.echo(f"{member.name:20} {place:24} {member.fingerprint} {until}")
        if member.accepts_previous(today):
            until = f"accepted until {member.previous_until}"
            typer.echo(f"{'':20} {'previous key':24} {member.previous_fingerprint} {until}")
    typer.echo(f"roster {whole.hashes(today)[0].hex()}")


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()
