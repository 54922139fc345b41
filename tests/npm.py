"""Packages of npm in a temporary folder, and programs that use them in Node."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

NODE: Final = shutil.which("node")
NPM: Final = shutil.which("npm")
INSTALL_SECONDS: Final = 300
needs_npm = pytest.mark.skipif(None in {NODE, NPM}, reason="there is no Node with npm on PATH")
_OPTIONS: Final = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefer-offline")


def install(folder: Path, *packages: str) -> Path:
    """Install packages, each with its version, unchanged and without running their scripts."""
    assert NPM is not None
    command = [NPM, "install", "--prefix", str(folder), *_OPTIONS, *packages]
    done = subprocess.run(command, capture_output=True, check=False, timeout=INSTALL_SECONDS)
    if done.returncode and b"network" in done.stderr:
        pytest.skip("the registry of npm cannot be reached")
    assert done.returncode == 0, done.stderr.decode()
    return folder


async def run_node(folder: Path, program: str, given: object, **environment: str) -> Any:
    """Run a module in a folder with packages, and return the JSON that it writes.

    Args:
        given: The value that the module reads from its standard input, as JSON.
        environment: More variables of its environment.
    """
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        *(NODE, "--input-type=module", "--eval", program),
        cwd=folder,
        env=os.environ | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, complained.decode()
    return json.loads(said)
