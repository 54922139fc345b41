"""The file for Docker Compose, and the image: the commands of the services run as processes."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.cli.invoking import done
from tests.deployment.commands import DEPLOYED, PARTIES, SECONDS, Command, call, deploy, wait_until

from veilring.deployment.compose import IMAGE
from veilring.deployment.examples.folder import ROSTER
from veilring.transport.roster import Roster
from veilring.transport.tls import LOOPBACK

ROOT: Final = Path(__file__).parents[2]
CONTAINERFILE: Final = ROOT / "deploy" / "Containerfile"


class Containers:
    """The services of a file for Docker Compose, as processes in the folders of their volumes.

    All run on this machine, so their rosters get its address in place of the services' names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
        self.running = dict[str, Command]()
        for name in self.services:
            path = folder / name / ROSTER
            roster = Roster.load(path)
            ports = {each: roster.member(each).port for each in roster.parties}
            assert [roster.member(each).host for each in ports] == [*ports]
            roster.at({each: (LOOPBACK, port) for each, port in ports.items()}).save(path)

    def start(self, name: str, *words: str) -> Command:
        """Start a service, by default with its own command."""
        service = self.services[name]
        ((source, target),) = (each.split(":") for each in service["volumes"])
        assert service["working_dir"] == target
        place = self.folder / source
        output = self.folder / f"{name}.log"
        given = words or tuple(service["command"])
        self.running[name] = Command(place, *given, output=output)
        return self.running[name]

    def up(self) -> None:
        """Start all services without a profile, and wait until each is healthy."""
        names = [name for name, each in self.services.items() if "profiles" not in each]
        for name in names:
            self.start(name)
        for name in names:
            wait_until(partial(self.is_healthy, name))

    def is_healthy(self, name: str) -> bool:
        """Return whether the health check of a running service succeeds."""
        assert self.running[name].poll() is None, self.running[name].output
        service = self.services[name]
        _, program, *words = service["healthcheck"]["test"]
        assert program == "veilring"
        place = self.folder / service["volumes"][0].partition(":")[0]
        return self.exit_code(place, *words) == 0

    def exit_code(self, place: Path, *words: str) -> int:
        """Run a command in the folder of a service, and return its exit code."""
        output = self.folder / "command.log"
        return Command(place, *words, output=output).wait(SECONDS)


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    """Return the containers of three parties and a client, and stop them at the end."""
    made = Containers(deploy(tmp_path / "trial", "votes", "--compose"))
    yield made
    for each in made.running.values():
        each.kill()


@pytest.mark.slow
def test_three_services_and_a_client_work_by_their_own_commands(containers: Containers) -> None:
    """The services become healthy, and the client gets its labels, each with its own folder alone.

    A stopped service ends with exit code 0, within the time that the file allows.
    """
    assert [*containers.services] == [*PARTIES, "client"]
    containers.up()
    asked = containers.start("client", "ask", "client.toml", "queries.csv", "--out", "labels.csv")
    assert asked.wait(SECONDS) == 0, asked.output
    own = containers.folder / "client"
    queries, labels = ((own / name).read_text() for name in ("queries.csv", "labels.csv"))
    assert queries.count("\n") == labels.count("\n") > 1
    containers.running["party-1"].terminate()
    assert containers.running["party-1"].wait(SECONDS) == 0


@pytest.mark.parametrize("system", ["votes", "owner", "prediction", "survey", "places", "sum"])
def test_each_member_has_its_own_files_and_no_others(system: str, tmp_path: Path) -> None:
    """Each folder has one key and all files that its commands name, which `veilring check` accepts.

    Nothing but the file for Compose is left beside the folders.
    """
    folder = tmp_path / "trial"
    kind, source, *options = DEPLOYED[system]
    if system == "places":
        source = str(tmp_path / "places.csv")
        Path(source).write_text("lat,lon\n37.7,-122.4\n37.8,-122.5\n")
    shown = done("deploy", kind, source, *options, "--compose", "--out", folder).splitlines()
    assert {path.name for path in folder.iterdir() if path.is_file()} == {"compose.yaml"}
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert services.keys() == {path.name for path in folder.iterdir() if path.is_dir()}
    for name, service in services.items():
        own = folder / name
        assert [path.name for path in own.glob("*.key")] == [f"{name}.key"]
        assert {path.suffix for path in own.glob(f"{name}.*")} >= {".key", ".toml"}
        if "healthcheck" in service:
            call("check", own / f"{name}.toml")
    up, *others = shown
    program = f"docker compose -f {folder / 'compose.yaml'} "
    assert up == f"{program}up --wait"
    for line in others:
        how, *words = shlex.split(line.removeprefix(program))
        name = words[1] if how == "run" else words[0]
        assert how == ("exec" if "healthcheck" in services[name] else "run")
        files = [word for word in words if re.search(r"\.(toml|db|csv)$", word)]
        assert files
        assert all((folder / name / file).exists() for file in files)


def test_the_file_fits_the_schema_of_compose(tmp_path: Path) -> None:
    """The schema of the Compose specification has each key, and no service runs as it likes.

    Each has a read-only file system, no capability and no way out of its network.
    """
    pytest.importorskip("check_jsonschema", reason="it is part of the extra `lint`")
    folder = deploy(tmp_path / "trial", "owner", "--compose")
    schema = ("--builtin-schema", "vendor.compose-spec")
    command = [sys.executable, "-m", "check_jsonschema", *schema, str(folder / "compose.yaml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    assert compose["networks"] == {"default": {"internal": True}}
    for service in compose["services"].values():
        assert (service["image"], service["read_only"], service["cap_drop"]) == (
            IMAGE,
            True,
            ["ALL"],
        )
        assert "ports" not in service


def test_the_image_copies_files_that_exist_and_runs_known_commands() -> None:
    """The Containerfile copies files of the repository, and each command exists."""
    lines = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    words = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    copied = [
        each
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for each in line.split()[1:-1]
    ]
    assert len(copied) > 1
    assert all((ROOT / each).exists() for each in copied)
    assert json.loads(" ".join(words["ENTRYPOINT"])) == ["veilring"]
    serve, _ = json.loads(" ".join(words["CMD"]))
    (_, check) = "".join(words["HEALTHCHECK"]).split("CMD")
    program, status, _ = json.loads(check)
    assert (program, words["USER"]) == ("veilring", ["10001:10001"])
    for command in (serve, status):
        assert done(command, "--help")
