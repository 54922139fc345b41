"""The unit for systemd and the alerts: their settings, and the command that the unit starts."""

import asyncio
import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.cli.invoking import done, refused
from tests.deployment.commands import SECONDS, Deploy

from veilring.cli.app import EXIT_INPUT
from veilring.deployment import load_config_of
from veilring.deployment.owner import OwnerConfig, serve_owner
from veilring.deployment.status import READY, STOPPING

UNIT: Final = Path(__file__).parents[2] / "deploy" / "veilring@.service"
PROGRAM: Final = "/opt/veilring/.venv/bin/veilring"
ETC: Final = "/etc/veilring"
needs_systemd: Final = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd on PATH"
)


def _service(unit: Path = UNIT) -> configparser.SectionProxy:
    """Return the settings of a service; of a key that occurs twice, the last value."""
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    read.read(unit)
    return read["Service"]


@needs_systemd
@pytest.mark.parametrize("unit", sorted(UNIT.parent.glob("*.service")), ids=lambda unit: unit.name)
def test_systemd_accepts_a_unit_and_finds_little_exposed(unit: Path, tmp_path: Path) -> None:
    """An instance of the template has no warning, and an exposure below 2 of 10."""
    instance = tmp_path / unit.name.replace("@", "@ada")
    instance.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    for command in ("verify", "security --offline=true --threshold=20 --no-pager"):
        ran = subprocess.run(
            ["systemd-analyze", *command.split(), instance],  # noqa: S607  (where a system has it)
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


async def test_each_alert_is_explained_and_uses_a_metric_of_a_party(deploy: Deploy) -> None:
    """The guide has a line for each alert, and an alert watches only metrics that exist."""
    (group,) = yaml.safe_load((UNIT.parent / "alerts.yaml").read_text())["groups"]
    guide = (UNIT.parents[1] / "docs" / "how-to" / "hospital.md").read_text(encoding="utf-8")
    alerts = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    assert [*alerts] == re.findall(r"^\| (Veilring\w+) \|", guide, re.MULTILINE)
    folder = deploy("owner").folder
    config = load_config_of(folder / "owner.toml", OwnerConfig, "veilring serve")
    ready = asyncio.Event()
    serving = asyncio.create_task(serve_owner(config, on_ready=lambda _: ready.set()))
    await ready.wait()
    shown = await asyncio.to_thread(done, "status", folder / "owner.toml", "--metrics")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    known = set(re.findall(r"^# TYPE (\w+)", shown, re.MULTILINE))
    assert {name for each in alerts.values() for name in re.findall(r"veilring_\w+", each)} <= known


def test_each_instance_of_the_metrics_has_a_port_of_its_own() -> None:
    """A file of the instance sets it; without one, it is the port that the guide names."""
    service = _service(UNIT.with_name("veilring-metrics@.service"))
    assert service["ExecStart"].split()[-2:] == ["--port", "${PORT}"]
    assert service["Environment"] == "PORT=9464"
    assert service["EnvironmentFile"] == f"-{ETC}/%i.metrics"
    assert list(service).index("Environment") < list(service).index("EnvironmentFile")


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
