"""Checks an installation without extras: its size, and that it serves and asks all systems.

Run `core/bin/python tests/core_only.py` in an environment with veilring and its core dependencies
only. Each system is deployed from a CSV file, served by processes over mutual TLS, and asked.
"""

import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from veilring.extras import EXTRA_OF

MIB_MAX: Final = 270
SECONDS: Final = 200.0
"""The most that anything may take, on a busy machine."""
SYSTEMS: Final = {
    "peers": (
        "my.csv --protocol rank-search --set parties.count=3",
        "ask peers/client.toml peers/queries.csv",
    ),
    "owner": ("my.csv --radius 0.3", "ask owner/analyst-0.toml owner/analyst-0.csv"),
    "prediction": ("my.csv", "ask prediction/client-0.toml prediction/client-0.csv"),
    "survey": (
        "my.csv --reports 10",
        "submit survey/survey-client-0.toml survey/survey-client-0.csv",
    ),
}
"""By the command that deploys it: its arguments, and how it is asked. Places need an extra."""


def main() -> None:
    """Print the findings; exit with 1 if it is too large or an extra is present."""
    there = [package for package in EXTRA_OF if find_spec(package) is not None]
    packages = Path(sysconfig.get_path("purelib"))
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / (1 << 20)
    print(f"installed: {size:.0f} MiB, at most {MIB_MAX}")
    if there or size > MIB_MAX:
        sys.exit(f"extras that are installed: {', '.join(there) or 'none'}")
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder))
        for system, (given, ask) in SYSTEMS.items():
            begun = time.monotonic()
            serve_and_ask(Path(folder), system, given, ask)
            print(f"{system}: served and asked in {time.monotonic() - begun:.1f} s")


def write_table(folder: Path) -> None:
    """Write a table of invented patients."""
    rng = random.Random(1)
    patients = ["age,marker,label"]
    for _ in range(200):
        ill = rng.random() < 0.4
        age, marker = rng.gauss(62 if ill else 48, 11), rng.gauss(7 if ill else 4, 1.5)
        patients.append(f"{age:.0f},{marker:.1f},{'malignant' if ill else 'benign'}")
    folder.joinpath("my.csv").write_text("\n".join([*patients, ""]), encoding="utf-8")


def serve_and_ask(folder: Path, system: str, given: str, ask: str) -> None:
    """Deploy a system, serve all its parties in processes, ask once, and stop them in order."""
    printed = veilring(folder, f"deploy {system} {given} --out {system}")
    lines = [line for line in printed.splitlines() if line.startswith("veilring serve ")]
    servers = dict[Path, subprocess.Popen[bytes]]()
    try:
        for number, line in enumerate(lines):
            log, words = folder / f"{system}-{number}.log", [sys.executable, "-m", *line.split()]
            with log.open("wb") as file:
                servers[log] = subprocess.Popen(words, cwd=folder, stdout=file, stderr=file)
        deadline = time.monotonic() + SECONDS
        for log, server in servers.items():
            while " is ready" not in log.read_text(encoding="utf-8"):
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{log.stem}: {log.read_text(encoding='utf-8')}")
                time.sleep(0.05)
        veilring(folder, ask)
        for server in servers.values():
            server.send_signal(signal.SIGINT)
        for log, server in servers.items():
            if server.wait(SECONDS):
                sys.exit(f"{log.stem}: {log.read_text(encoding='utf-8')}")
    finally:
        for server in servers.values():
            server.kill()


def veilring(folder: Path, command: str) -> str:
    """Run a command, and return its output."""
    words = [sys.executable, "-m", "veilring", *command.split()]
    done = subprocess.run(
        words, cwd=folder, check=False, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        sys.exit(f"veilring {command}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
