"""The unit for systemd: its settings, and the command that it starts."""

import configparser
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import refused
from tests.deployment.commands import SECONDS, Deploy

from veilring.cli.app import EXIT_INPUT
from veilring.deployment.status import READY, STOPPING

UNIT: Final = Path(__file__).parents[2] / "deploy" / "veilring@.service"
PROGRAM: Final = "/opt/veilring/.venv/bin/veilring"
ETC: Final = "/etc/veilring"
needs_systemd: Final = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd on PATH"
)


def _service() -> configparser.SectionProxy:
    """Return the settings of the service; of a key that occurs twice, the last value."""
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    read.read(UNIT)
    return read["Service"]


@needs_systemd
def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    """An instance of the template has no warning, and an exposure below 2 of 10."""
    instance = tmp_path / "veilring@ada.service"
    instance.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    for command in ("verify", "security --offline=true --threshold=20 --no-pager"):
        ran = subprocess.run(
            ["systemd-analyze", *command.split(), instance],  # noqa: S607  (where a system has it)
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


def test_a_wrong_file_does_not_restart_the_unit(tmp_path: Path) -> None:
    """The unit starts no party again that ended with the exit code of wrong input."""
    assert "there is no file" in refused("serve", tmp_path / "ada.toml")
    assert _service()["RestartPreventExitStatus"] == str(EXIT_INPUT)


def test_the_units_command_tells_systemd_that_the_party_is_ready(
    deploy: Deploy, tmp_path: Path
) -> None:
    """Its party sends READY and STOPPING to the address in NOTIFY_SOCKET, and ends with 0."""
    folder, service = deploy("owner").folder, _service()
    assert service["Type"] == "notify"
    program, *words = shlex.split(service["ExecStart"].replace("%i", "owner"))
    assert program == PROGRAM
    command = [
        sys.executable,
        "-m",
        "veilring",
        *(each.replace(ETC, str(folder)) for each in words),
    ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(SECONDS)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as party:
            try:
                assert notified.recv(99) == READY.encode()
                party.send_signal(signal.SIGTERM)
                assert notified.recv(99) == STOPPING.encode()
                assert party.wait(SECONDS) == 0
            finally:
                party.kill()
