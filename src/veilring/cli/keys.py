"""`veilring keys`: a key for each party, and the roster that names them all."""

import contextlib
import datetime as dt
import os
import shutil
from collections.abc import Sequence
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
_OLD: Final = ".old"
"""The ending of the file of a party's key before the present one."""

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


@keys_app.command("sealing")
def make_sealing_key(
    path: Annotated[Path, typer.Argument(help="File of an aggregator's keys.", metavar="FILE")],
) -> None:
    """Draw the key to which clients of a verified sum seal their reports.

    If the file exists, the new key comes before the earlier ones, which are still accepted for
    some time. The file must stay on the machine of its aggregator, which reads it again on SIGHUP.

    For example:

        veilring keys sealing leader.hpke
    """
    import time

    from veilring.protocols.prio.sealing import add_key

    add_key(path, time.time())
    typer.echo(f"keys: {path}")


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
    and the last day on which its keys are accepted with --until. Then only the public parts of the
    members with new keys are needed: the others, and the order, are those of that roster.
    """
    from veilring.errors import InputError
    from veilring.transport.roster import Roster

    _require_new("--out", out)
    whole = Roster(tuple(member for path in members for member in _load(path).members))
    if (previous is None) != (until is None):
        raise InputError.because("give --previous and --until together", field="--previous")
    if previous and until:
        whole = _rotating(_load(previous), whole.members, until)
    whole.save(out)
    _describe(whole)


def _rotating(before: "Roster", changed: "Sequence[Member]", until: dt.datetime) -> "Roster":
    """Return a roster with some members changed, whose previous keys are accepted up to a day."""
    from dataclasses import replace

    from veilring.transport.roster import Roster, utc_now

    given = {member.name: member for member in changed}
    members = [
        given.pop(each.name, replace(each, previous="", previous_until=None))
        for each in before.members
    ]
    whole = Roster((*members, *given.values()))
    return whole.replacing(before, until.date(), utc_now().date())


def _require_new(field: str, path: Path) -> None:
    from veilring.errors import InputError

    if path.exists():
        raise InputError(field, path, "a file that does not exist yet")


@keys_app.command("renew")
def renew_key(
    config: Annotated[
        Path, typer.Argument(help="Configuration or key file of the party.", metavar="CONFIG|KEY")
    ],
    *,
    roster: Annotated[
        Path | None,
        typer.Option(
            metavar="ROSTER.TOML", help="Roster in use. Default: that of the configuration."
        ),
    ] = None,
    until: Annotated[
        dt.datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            help="Also write a new roster, with the present key accepted up to this day (UTC).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New roster. Default: ROSTER.TOML.new.")
    ] = None,
    days: Annotated[int, typer.Option(help="Validity of the certificate, in days.")] = 365,
    use: Annotated[
        bool, typer.Option("--use", help="Put the next key in the place of the present one.")
    ] = False,
) -> None:
    """Make the next key of a party beside its present one, or change to it.

    Writes KEY.new, which must stay on its machine, and KEY.member.toml.new for the person who makes
    the roster. Nothing that the party uses changes: it runs on with its present key. Then, while
    all members run:

    1. Make a roster that accepts both keys: with --until here, or with `veilring keys roster
    --previous ROSTER.TOML --until DAY`.

    2. Give it to all members and clients. Each party reads it on SIGHUP (`systemctl reload`).

    3. Run this command with --use, and send SIGHUP to the party. In one step, KEY becomes the next
    key; the present one is kept as KEY.old until you remove it.

    For example:

        veilring keys renew ada.toml --until 2030-06-30

        veilring keys renew ada.toml --use
    """
    from veilring.errors import InputError
    from veilring.transport.roster import (
        NEXT,
        Member,
        Roster,
        load_identity,
        make_identity,
        save_key,
    )

    key, named = _files_of(config)
    roster = roster or named
    if roster is None:
        raise InputError.because("give the roster with --roster, or a configuration", field="KEY")
    present, before, following = load_identity(key), _load(roster), Path(f"{key}{NEXT}")
    if use:
        _use(key, following, before)
        return
    old = before.member(present.name)
    if old.fingerprint != present.fingerprint:
        raise InputError.because(
            f"{key} is not the key of {old.name} in {roster}; change to that one first", field="KEY"
        )
    identity = make_identity(old.name, valid_days=days)
    member = Member.of(identity, old.host, old.port, old.kind)
    new = _rotating(before, [member], until) if until else None
    out = out or Path(f"{roster}{NEXT}")
    if new:
        _require_new("--out", out)
    _require_new("path", following)
    public = Path(f"{_public(key)}{NEXT}")
    Roster((member,)).save(public)  # an interrupted command may have left one
    save_key(identity, following, like=key)
    typer.echo(f"{following}: the next private key; keep it on this machine")
    typer.echo(f"{public}: the public part; send it to the person who makes the roster")
    typer.echo(f"fingerprint {member.fingerprint}")
    if new:
        new.save(out)
        typer.echo(f"{out}: the new roster; give it to all members and clients, then run --use")
        _describe(new)


def _public(key: Path) -> Path:
    return key.with_suffix(".member.toml")


def _files_of(path: Path) -> tuple[Path, Path | None]:
    """Return the files of a party's key and roster."""
    if path.suffix != ".toml":
        return path, None
    from veilring.deployment import load_config

    config = load_config(path)
    return Path(config.identity), Path(config.roster)


def _use(key: Path, following: Path, roster: "Roster") -> None:
    """Put the next key in the place of the present one, which is kept under another name."""
    from veilring.config import missing_file
    from veilring.errors import InputError
    from veilring.privacy.files import sync_folder
    from veilring.transport.roster import NEXT, load_identity

    if not following.exists():
        raise missing_file(following, "KEY")
    identity, kept = load_identity(following), Path(f"{key}{_OLD}")
    member = roster.member(identity.name)
    if member.fingerprint != identity.fingerprint:
        raise InputError.because(
            f"the roster has another key of {member.name} than {following}; all members need a"
            " roster that accepts both keys first",
            field="--use",
        )
    if kept.exists() and not kept.samefile(key):  # unless this was interrupted
        raise InputError.because(f"{kept} is an earlier key; remove it first", field="--use")
    kept.unlink(missing_ok=True)
    os.link(key, kept)
    following.replace(key)
    with contextlib.suppress(FileNotFoundError):
        Path(f"{_public(key)}{NEXT}").replace(_public(key))
    sync_folder(key.parent)
    typer.echo(f"{key}: the key from now on; send SIGHUP to the party, or restart it")
    typer.echo(f"{kept}: the key before; remove it when the party uses the new one")


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
    from veilring.transport.roster import utc_now

    now = utc_now()
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
