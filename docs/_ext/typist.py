"""Runs each command of a page, in order, in an empty folder.

In addition to the comments of a page (`blocks`), these rules apply everywhere:

- `veilring serve` runs in the background. It is ready before the next command, is stopped at the
  end of the page, and must then end without an error.
- A `console` block shows the output of a command; `…` stands for any text. If the output is an
  error of veilring, the command must fail.
- The ports 7311 to 7319 are replaced by free ports, and hosts that end in `.example` by this
  machine. `veilring deploy` and `veilring keys new` get these as options.
- Installation commands are skipped, and the rest of their line is run in this environment.

`python -m docs._ext.typist docs/quickstart.md …` runs pages and prints the time of each.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.ports import PORTS_MAX, reserve_ports
from docs._ext.blocks import Block, blocks
from docs._ext.samples import write_sample
from docs._ext.served import SECONDS, Mistyped, Served

_COLUMNS: Final = "120"  # the width of a page's lines
_INSTALLS: Final = re.compile(
    r"(?:python3 -m venv \.venv && )?\.venv/bin/pip install [^&\n]*(?:&& )?"
)
_CLONE: Final = Path(__file__).parents[2]
_SERVE: Final = re.compile(r"veilring serve (\S+)")
_LISTENS: Final = re.compile(
    r"(veilring (?:deploy|keys new) [a-z]+(?:-[a-z]+)*)(?![^\n;]*--(?:port|client))"
)
# On standard error, which a page does not show: there, a terminal has a bar instead.
_PROGRESS: Final = re.compile(r"^\w[^:\n]*(?:: [^:\n]+)?: [\d,]+ of [\d,]+\n", re.MULTILINE)
_ERROR: Final = re.compile(r"^veilring: ", re.MULTILINE)
_TABLE_LINE: Final = re.compile(r"^(?=[┏┃┡│├└])", re.MULTILINE)


class Typist:
    """Runs the blocks of one page.

    Args:
        folder: The working directory of the commands.
        path: The folders in which to look for commands first, before that of the running Python.
    """

    def __init__(self, folder: Path, *path: Path) -> None:
        self._folder = folder
        self._tens = reserve_ports(PORTS_MAX) // 10
        self._servers: list[Served] = []
        path = (*path, Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "COLUMNS": _COLUMNS,
            # Other pages need the cores, and a process of a pool imports everything again.
            "LOKY_MAX_CPU_COUNT": "1",
            "PYTHONPATH": str(_CLONE),
        }

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all servers; a server that ends with an error is a mistake of the page."""
        try:
            if error is None:
                self._stop("all")
        finally:
            for server in self._servers:
                server.kill()

    def type(self, block: Block) -> None:
        """Run a block, if it has anything to run.

        Raises:
            Mistyped: If a command fails, or does not print what it shows.
        """
        for named in block.said("stops"):
            self._stop(*named.split())
        for wanted in block.said("with"):
            name, _, source = wanted.partition(" from ")
            write_sample(self._folder / name, source)
        for command in block.said("first"):
            self._shell(command)
        text = block.text
        for change in block.said("in CI"):
            new, _, old = change.partition(" for ")
            if old not in text:
                raise Mistyped(f"there is no {old} in\n{text}")
            text = text.replace(old, new if new != "nothing" else "")
        for name in block.said("file"):
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(self._here(text), encoding="utf-8")
        if block.runs:
            {"sh": self._shell, "console": self._console, "python": self._python}[block.language](
                text
            )

    def _here(self, text: str) -> str:
        """Return a text with the ports and hosts of this machine."""
        text = _INSTALLS.sub("", text).replace(".venv/bin/", "")
        text = _LISTENS.sub(r"\1 --port 7311", text)
        text = re.sub(r"\b[a-z]+\.example\b", "127.0.0.1", text)
        return re.sub(r"\b731(\d)\b", rf"{self._tens}\1", text)

    def _shell(self, text: str) -> None:
        lines: list[str] = []
        for line in self._here(text).splitlines():
            if serve := _SERVE.match(line):
                self._run("\n".join(lines))
                lines = []
                self._servers.append(Served(serve[1], self._folder, self._environment))
            else:
                lines.append(line)
        self._run("\n".join(lines))

    def _console(self, text: str) -> None:
        for shown in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = shown.partition("\n")
            printed = self._run(self._here(command), fails=bool(_ERROR.search(output)))
            printed = _PROGRESS.sub("", printed)
            pattern = re.escape(_squeezed(output)).replace("…", ".*?")
            if not re.fullmatch(pattern, _squeezed(printed), re.DOTALL):
                raise Mistyped(f"{command}\nshows\n{output}\nand prints\n{printed}")

    def _python(self, text: str) -> None:
        self._words(["python", "-W", "error", "-c", text], text)

    def _run(self, script: str, *, fails: bool = False) -> str:
        if not script.strip():
            return ""
        return self._words(["bash", "-euo", "pipefail", "-c", script], script, fails=fails)

    def _words(self, words: list[str], shown: str, *, fails: bool = False) -> str:
        for server in self._servers:
            server.wait()
        ran = subprocess.run(
            words,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        if bool(ran.returncode) is not fails:
            raise Mistyped(f"{shown}\nended with {ran.returncode}:\n{ran.stdout}")
        return ran.stdout

    def _stop(self, *configs: str) -> None:
        stopped = [each for each in self._servers if configs == ("all",) or each.config in configs]
        self._servers = [each for each in self._servers if each not in stopped]
        for server in stopped:
            server.stop()


def _squeezed(printed: str) -> str:
    """Return an output with single blanks: a page may break its text elsewhere, but no table."""
    return " ".join(_TABLE_LINE.sub("↵", printed).split())


def type_page(page: Path, folder: Path, *path: Path) -> None:
    """Run all commands of a page.

    Args:
        page: The page.
        folder: An empty folder.
        path: The folders in which to look for commands first.

    Raises:
        Mistyped: If a command fails or prints another output, with the line of the page.
    """
    with Typist(folder, *path) as typist:
        for block in blocks(page.read_text(encoding="utf-8")):
            try:
                typist.type(block)
                for name in block.said("same"):
                    if (folder / Path(name).name).read_bytes() != (page.parent / name).read_bytes():
                        raise Mistyped(f"{name} is not what is drawn now")  # noqa: TRY301  (the handler adds the line)
            except Mistyped as error:
                raise Mistyped(f"{page.name}, line {block.line}: {error}") from None


def main() -> None:
    """Run the given pages, and print the time of each."""
    for name in sys.argv[1:]:
        folder = Path(tempfile.mkdtemp())
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        type_page(Path(name), folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{spent:6.1f} s of a core, {time.monotonic() - began:6.1f} s: {name}")  # noqa: T201  (a command)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
