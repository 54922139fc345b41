"""A trial deployment in containers: a folder for each member, and a file for Docker Compose.

Each container has the folder of its member alone, as on a machine of its own, and reaches the
others by their names in a network without a way out.
"""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import tomli_w

from veilring.deployment.examples.folder import ROSTER
from veilring.transport.roster import Roster

COMPOSE: Final = "compose.yaml"
"""The name of the file for Docker Compose."""
IMAGE: Final = "veilring"
"""The name of the image, which `deploy/Containerfile` of the repository describes."""
_WORK: Final = "/var/lib/veilring"
_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104  (of a container, in a network of its own)
_SHARED: Final = f"""\
# A trial on one machine: build the image `{IMAGE}` first. In production each party makes its own
# key and runs on its own machine.
x-member: &member
  image: {IMAGE}
{{user}}  working_dir: {_WORK}
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]

networks:
  default:
    internal: true

services:
"""
_PARTY: Final = f"""\
  {{name}}:
    <<: *member
    command: [serve, {{config}}]
    volumes: [{{folder}}:{_WORK}]
    healthcheck:
      test: [CMD, veilring, status, {{config}}]
      interval: 10s
      timeout: 10s
      start_period: 60s
    stop_grace_period: 60s
    restart: on-failure:5
"""
_CLIENT: Final = f"""\
  {{name}}:
    <<: *member
    profiles: [clients]
    command: [--help]
    volumes: [{{folder}}:{_WORK}]
    depends_on: {{parties}}
"""


def write_compose(folder: Path, commands: Sequence[str]) -> tuple[str, ...]:
    """Divide the folder of a new deployment among its members, and describe their containers.

    Args:
        folder: A folder that `write_folder` has written.
        commands: The commands to try there, without the word `veilring`.

    Returns:
        The commands to try in its place, which start and use the containers.
    """
    roster = Roster.load(folder / ROSTER)
    calls = [command.replace(f"{folder}{os.sep}", "").split() for command in commands]
    for name in roster.names:
        named = {word for call in calls if _member_of(call) == name for word in call}
        _give_own_files(folder, name, named, listens=name in roster.parties)
    reachable = roster.at({name: (name, roster.member(name).port) for name in roster.parties})
    for name in roster.names:
        reachable.save(folder / name / ROSTER)
    for shared in [each for each in folder.iterdir() if each.is_file()]:
        shared.unlink()  # of which each member has a copy
    (folder / COMPOSE).write_text("".join(_describe(roster)), encoding="utf-8")
    return tuple(_in_containers(folder, calls, roster.parties))


def _member_of(call: Sequence[str]) -> str:
    """Return the member whose configuration or state a command names first."""
    return next(Path(word).stem for word in call if "." in word)


def _give_own_files(folder: Path, name: str, named: set[str], *, listens: bool) -> None:
    """Move or copy the files of a member into a folder of its own."""
    own = folder / name
    own.mkdir()
    tables = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    named |= {value for value in tables.values() if isinstance(value, str)}
    for path in sorted(each for each in folder.iterdir() if each.is_file()):
        if path.name.startswith(f"{name}."):
            shutil.move(path, own)
        elif path.name in named and path.name != ROSTER:
            shutil.copy2(path, own)
    if listens:
        text = tomli_w.dumps({**tables, "listen": _ALL_ADDRESSES})
        (own / f"{name}.toml").write_text(text, encoding="utf-8")


def _describe(roster: Roster) -> Iterator[str]:
    # The files of a member can only be read by the user who wrote them.
    user = f'  user: "{os.getuid()}:{os.getgid()}"\n' if hasattr(os, "getuid") else ""
    yield _SHARED.format(user=user)
    parties = json.dumps({name: {"condition": "service_healthy"} for name in roster.parties})
    for name in roster.names:
        text = _PARTY if name in roster.parties else _CLIENT
        yield text.format(
            name=json.dumps(name),
            config=json.dumps(f"{name}.toml"),
            folder=f"./{name}",
            parties=parties,
        )


def _in_containers(
    folder: Path, calls: Sequence[Sequence[str]], parties: Sequence[str]
) -> Iterator[str]:
    compose = f"docker compose -f {folder / COMPOSE}"
    yield f"{compose} up --wait"
    for call in calls:
        name, words = _member_of(call), " ".join(call)
        if call[0] != "serve":
            how = f"exec {name} veilring" if name in parties else f"run --rm {name}"
            yield f"{compose} {how} {words}"
