"""Check the project's prose: grammar, spelling and house style.

Harper (`harper-cli`) is the engine. The folder `style` has the project's own rules for it, one
`.weir` file each, with its examples; `built-in.txt` lists those of Harper's rules that apply;
`words.txt` lists words that its dictionary lacks; and `openings.toml` has the openings that no
sentence has, because Harper's rules cannot refer to the beginning of a sentence.

    python .ci/prose.py [PATH ...]   check these files and folders, or all of them
    python .ci/prose.py --count      print the number of findings of each file
    python .ci/prose.py --examples   run the examples of the rules
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harper.__main__ import find_binary_path

ROOT = Path(__file__).resolve().parents[1]
STYLE = ROOT / ".ci" / "style"
CHECKED = ("*.md", "src/*.py", "tests/*.py", "docs/*.py", "benchmarks/*.py", "papers/*.py")

_SECTIONS = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
_PARAMETER = re.compile(r"^(\*{0,2}[\w.]+): ")
_SENTENCE = re.compile(r"(?:(?<=[.;:!?] )|^)[A-Z][^.;:!?]*[.;:!?]?")
_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|\{[\w:]+\}")
# An example of a rule; a bad one has what it becomes behind it.
_EXAMPLE = re.compile(r'^(?:test|allows) "(.+?)"(?: "(.+)")?$', re.MULTILINE)
_BATCHES = 8  # of pages: Harper reads several files at once, and prepares long for each
_WORDS_MIN = 4  # a shorter string is a name, a key or a part of a file


class Finding(NamedTuple):
    """A place where a rule was broken."""

    path: str
    line: int
    rule: str
    text: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text!r}: {self.message}"


@dataclass
class Prose:
    """The prose of a file, as Markdown, and the line of the file that each of its lines is from."""

    path: str
    lines: list[str] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)

    def add(self, text: str, origin: int) -> None:
        """Append one line."""
        self.lines.append(text)
        self.origins.append(origin)


def of_markdown(path: str, text: str) -> Prose:
    """Return a page without its blocks of code, directives and comments."""
    prose, fence, comment = Prose(path), "", False
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|:{3,})", line)
        comment = comment or line.startswith("<!--")
        shown = line
        if mark and mark[1].startswith("`") and (not fence or line.strip() == fence):
            fence, shown = ("" if fence else mark[1]), ""
        elif fence or comment or mark or re.match(r"\s*(:[\w-]+:|\[[^]]+\]:|\(\S+\)=)", line):
            shown = ""
        comment = comment and "-->" not in line
        prose.add(shown, number)
    return prose


def of_python(path: str, text: str) -> Prose:
    """Return the docstrings of a module and, where it is shipped, the sentences in its strings."""
    prose, is_shipped = Prose(path), path.startswith("src/")
    taken = set[int]()  # strings that are part of something else
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(content)) as constant):
                taken.add(id(constant))
                _add_docstring(prose, content, constant.lineno)
            case ast.JoinedStr(values=values) if is_shipped:
                taken.update(map(id, values))
                _add_string(prose, "".join(map(_shown, values)), node.lineno)
            case ast.Constant(value=str(content)) if is_shipped and id(node) not in taken:
                _add_string(prose, content, node.lineno)
    return prose


def _shown(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "`x`"


def _add_docstring(prose: Prose, content: str, first: int) -> None:
    in_section = False
    for number, line in enumerate(content.splitlines(), first):
        indent = len(line) - len(line.lstrip()) if number > first else 0
        base = _indent(content)
        stripped = line.strip()
        if indent <= base:
            in_section = bool(_SECTIONS.match(stripped))
        is_code = indent >= base + 4 and not in_section
        if in_section and (_SECTIONS.match(stripped) or _PARAMETER.match(stripped)):
            prose.add("", number)
        if _SECTIONS.match(stripped) or is_code:
            stripped = ""
        prose.add(_PARAMETER.sub(r"`\1`: ", stripped) if in_section else stripped, number)
    prose.add("", first)


def _indent(content: str) -> int:
    rest = [line for line in content.splitlines()[1:] if line.strip()]
    return min((len(line) - len(line.lstrip()) for line in rest), default=0)


def _add_string(prose: Prose, content: str, line: int) -> None:
    words = re.findall(r"(?<![\w`])[A-Za-z]{2,}(?![\w`])", content)
    if len(words) >= _WORDS_MIN and not re.search(r"\b[A-Z]{4,} |[{}<>=\\]|^\S+$", content):
        for paragraph in content.strip().split("\n\n"):
            prose.add(" ".join(paragraph.split()), line)
            prose.add("", line)


def openings(prose: Prose, rules: dict[str, dict[str, str]]) -> Iterator[Finding]:
    """Yield the sentences that begin as no sentence shall."""
    block, start = "", 0
    for text, origin in zip([*prose.lines, ""], [*prose.origins, 0], strict=True):
        line = re.sub(r"^\s*([-*>#|]+|\d+\.|`[^`]*`:)\s*", "", text)
        if block and (not text.strip() or line != text):
            yield from _openings(prose.path, start, block, rules)
            block = ""
        start = start if block else origin
        block = f"{block} {line}".strip()


def _openings(
    path: str, line: int, block: str, rules: dict[str, dict[str, str]]
) -> Iterator[Finding]:
    for sentence in _SENTENCE.findall(_CODE.sub("x", block)):
        for name, rule in rules.items():
            if re.match(rule["pattern"], sentence) and not sentence.endswith("?"):
                yield Finding(path, line, name, sentence[:40], rule["message"])


def harper(pages: Sequence[Prose]) -> Iterator[Finding]:
    """Yield what Harper finds, by its own rules and by the project's."""
    accepted = (STYLE / "words.txt").read_text(encoding="utf-8").split()
    built_in = (STYLE / "built-in.txt").read_text(encoding="utf-8").split()
    batches = {f"{first}.md": pages[first::_BATCHES] for first in range(_BATCHES)}
    files = {
        name: [line for page in batch for line in (*page.lines, "")]
        for name, batch in batches.items()
    }
    for each in _lint(files, *built_in):
        origins = [
            (page.path, origin) for page in batches[each["file"]] for origin in (*page.origins, 0)
        ]
        for lint in each["lints"]:
            path, line = origins[lint["line"] - 1]
            found = " ".join(lint["matched_text"].split())
            is_name = found[0].isupper() or len(found.strip(".")) == 1  # or a symbol
            if lint["rule"] == "SpellCheck" and (is_name or found in accepted):
                continue  # Harper's own dictionary takes precedence over words of another dialect
            yield Finding(path, line, lint["rule"], found[:60], lint["message"])


def _lint(files: Mapping[str, Sequence[str]], *built_in: str) -> list[dict[str, Any]]:
    """Return Harper's findings in each file, by the project's rules and by some of its own."""
    own = sorted(STYLE.glob("*.weir"))
    rules = ",".join((*(rule.stem for rule in own), *built_in))
    with tempfile.TemporaryDirectory() as folder, find_binary_path() as binary:
        pack = Path(folder) / "style.weirpack"
        with zipfile.ZipFile(pack, "w") as file:
            for rule in (*own, STYLE / "manifest.json"):
                file.write(rule, rule.name)
        for name, lines in files.items():
            (Path(folder) / name).write_text("\n".join(lines), encoding="utf-8")
        options = ["--format", "json", "--quiet", "--dialect", "british", "--only", rules]
        options += ["--weirpacks", str(pack), "--user-dict-path", str(STYLE / "words.txt")]
        done = subprocess.run(
            [binary, "lint", *options, *files],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        raise SystemExit(done.stderr)
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


def check(paths: Iterable[str]) -> list[Finding]:
    """Return all findings in these files, in their order."""
    pages = []
    for path in paths:
        of = of_python if path.endswith(".py") else of_markdown
        pages.append(of(path, (ROOT / path).read_text(encoding="utf-8")))
    rules = tomllib.loads((STYLE / "openings.toml").read_text(encoding="utf-8"))
    begun = [finding for page in pages for finding in openings(page, rules)]
    return sorted([*begun, *harper(pages)])


def examples() -> list[str]:
    """Return the rules that lack an example, or are wrong about one.

    Harper prepares as long for one rule as for all, so that it reads all examples at once.
    """
    listed = {rule.stem: _EXAMPLE.findall(rule.read_text("utf-8")) for rule in STYLE.glob("*.weir")}
    wrong = {
        name
        for name, shown in listed.items()
        if {bool(better) for _, better in shown} != {True, False}
    }
    flat = [(name, *example) for name, shown in listed.items() for example in shown]
    for (name, _, better), found in zip(
        flat, _corrected([text for _, text, _ in flat]), strict=True
    ):
        if ((name, better) not in found) if better else (name in dict(found)):
            wrong.add(name)
    rules = tomllib.loads((STYLE / "openings.toml").read_text(encoding="utf-8"))
    for name, rule in rules.items():
        bad, good = (
            [found.rule for found in openings(Prose("", [rule[kind]], [1]), {name: rule})]
            for kind in ("bad", "good")
        )
        if bad != [name] or good:
            wrong.add(name)
    return sorted(wrong)


def _corrected(sentences: Sequence[str]) -> list[set[tuple[str, str]]]:
    """Return, for each sentence, the rules that find something and what they make of it."""
    (said,) = _lint({"examples.md": [line for text in sentences for line in (text, "")]})
    found = [set[tuple[str, str]]() for _ in sentences]
    for lint in said["lints"]:
        place, first = (lint["line"] - 1) // 2, lint["column"] - 1
        before, after = (
            sentences[place][:first],
            sentences[place][first + len(lint["matched_text"]) :],
        )
        for each in lint["suggestions"] or [""]:
            words = each.removeprefix("Replace with: “").removesuffix("”")
            found[place].add((lint["rule"], f"{before}{words}{after}"))
    return found


def tracked(below: Path = ROOT) -> list[str]:
    """Return the files with prose that git tracks in a folder."""
    listed = subprocess.run(
        ["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.split() if (ROOT / path).is_relative_to(below)]


def named(path: str) -> list[str]:
    """Return a file, or the files with prose of a folder."""
    return tracked(Path(path).resolve()) if Path(path).is_dir() else [path]


def main(arguments: list[str]) -> int:
    """Check what the arguments name; return 1 if anything is found."""
    if arguments == ["--examples"]:
        wrong = examples()
        print("\n".join(wrong) or "All examples are as they should be.")
        return bool(wrong)
    paths = [each for path in arguments if path != "--count" for each in named(path)]
    findings = check(paths or tracked())
    if "--count" in arguments:
        for path, count in Counter(found.path for found in findings).most_common():
            print(f"{count:5} {path}")
    else:
        print(*findings, sep="\n")
    print(f"{len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
