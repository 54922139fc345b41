"""Commands and files in the documentation work as shown, and wrong ones are detected."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import tomli_w
import typer
from docs._ext.blocks import MEANINGS, RUN, Block, blocks, pages
from docs._ext.served import Mistyped
from docs._ext.starter import Starter
from docs._ext.typist import type_page

from veilring.cli.app import app
from veilring.data.cells import Reading
from veilring.deployment import load_config
from veilring.deployment.config import Terms
from veilring.deployment.owner import OwnerTerms
from veilring.deployment.peers import PeerTerms
from veilring.deployment.places import PlacesTerms
from veilring.deployment.policy import Policy
from veilring.deployment.prediction import PredictionTerms
from veilring.deployment.statistics import StatisticsTerms
from veilring.deployment.surveys.questionnaire import Questionnaire
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.scenarios import make_scenario
from veilring.scenarios.schema import make_experiment

ROOT: Final = Path(__file__).parents[2]
FILES: Final = (Policy, Reading, Questionnaire)
"""The models of files that are read on their own."""
LANGUAGES: Final = RUN | {"", "ini", "pycon", "text", "toml"}
# Everything else is run. The page states the same reason for each line that is added here.
BY_HAND: Final = (
    ("README.md", ".ci/run types it"),
    ("README.md", "a part of tests/docs/test_class_counts.py"),
    ("README.md", "a part of docs/examples/class_counts.py"),
    ("docs/benchmarks.md", "it takes minutes; tests/benchmarks/test_measured.py runs a quick one"),
    ("docs/how-to/audit-views.md", "a part of docs/examples/intersection_size.py"),
    ("docs/how-to/audit-views.md", "a part of docs/examples/intersection_size.py"),
    ("docs/how-to/audit-views.md", "a part of a test of your own"),
    ("docs/how-to/audit.md", "a part of a test of your own"),
    ("docs/how-to/audit.md", "the first command finds a leak, and ends with exit code 1"),
    ("docs/how-to/audit.md", "a part of a test of your own"),
    ("docs/how-to/explore.md", "a line of a role of your own"),
    ("docs/how-to/explore.md", "the role is wrong, so that the command ends with exit code 1"),
    ("docs/how-to/lies.md", "a part of a test of your own"),
    (
        "docs/how-to/explore.md",
        "no world goes wrong here; tests/testing/exploring/test_shrinking.py makes one",
    ),
    ("docs/how-to/survey.md", "it needs npm and the network"),
    ("docs/how-to/survey.md", "it runs until it is stopped"),
    ("docs/how-to/predict.md", "a model of sentence-transformers on disk is needed"),
    ("docs/how-to/predict.md", "a model of sentence-transformers on disk is needed"),
    ("docs/protocols/data-owner.md", "the tables are files, and it takes minutes"),
    *(
        (f"docs/tutorials/{page}.md", f"the {what}, so that the command ends with exit code 1")
        for page, what in (
            ("gossip", "second claim is contradicted"),
            ("gossip", "claim is wrong"),
            ("masked-median", "second claim is contradicted"),
            ("private-intersection", "second claim is contradicted"),
            ("threshold-sum", "second claim is contradicted"),
            ("threshold-sum", "role is wrong"),
        )
    ),
)
TERMS: Final[dict[str, type[Terms]]] = {
    "data-owner": OwnerTerms,
    "ind-knn": PredictionTerms,
    "ldp-bayes": SurveyTerms,
    "tree-walk": PlacesTerms,
}
"""The models of terms by their systems; those of any other are `PeerTerms`."""
COMMAND: Final[Any] = typer.main.get_command(app)
PROSE: Final = re.compile(r"(?<!`)`(veilring [^`]+)`(?!`)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path) -> tuple[Block, ...]:
    return tuple(blocks(page.read_text(encoding="utf-8")))


def _running() -> list[Path]:
    return [page for page in pages() if any(block.runs for block in _blocks(page))]


@pytest.mark.docs
@pytest.mark.parametrize("page", _running(), ids=_name)
def test_commands_of_a_page_run(page: Path, starter: Starter, tmp_path: Path) -> None:
    """Each command of a page works, in the order in which readers type them."""
    type_page(page, tmp_path, starter.path)


def test_skipped_blocks_have_a_reason() -> None:
    """Only the listed blocks are skipped, each with its reason."""
    found = [
        (_name(page), reason)
        for page in pages()
        for block in _blocks(page)
        for reason in block.said("by hand")
    ]
    assert sorted(found) == sorted(BY_HAND)


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_block_is_covered(page: Path) -> None:
    """Each fence of a page has a known language, and each comment has a known meaning."""
    text, found = page.read_text(encoding="utf-8"), _blocks(page)
    fences = re.findall(r"^[ \t>]*(?:`{3,}|~{3,})", text, re.MULTILINE)
    assert fences == ["```"] * (2 * len(found))
    for block in found:
        directive = re.fullmatch(r"\{[\w-]+\}.*", block.language)
        assert directive or block.language in LANGUAGES, f"line {block.line}: {block.language}"
        if block.language not in RUN:
            assert not re.search(r"^(\$|veilring|python3?) ", block.text, re.MULTILINE), block.line
    assert text.count("<!--") == sum(len(block.notes) for block in found)
    assert {note.about for block in found for note in block.notes} <= MEANINGS


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_files_on_a_page_load(page: Path, tmp_path: Path) -> None:
    """Each TOML listing is valid as a configuration, terms, a scenario, or options of pytest."""
    before: dict[str, Any] = {}
    for block in _blocks(page):
        if block.language != "toml":
            continue
        tables = tomllib.loads(block.text)
        path = tmp_path / "shown.toml"
        path.write_text(block.text, encoding="utf-8")
        if ":" in tables.get("role", ""):
            make_experiment(tables)
        elif "role" in tables:
            before = tables
            load_config(path)
        elif tables.keys() & {"crs", "dimensions", "features", "protocol"}:
            path.rename(tmp_path / "terms.toml")  # of the configurations that follow
            TERMS.get(tables.get("protocol", {}).get("name"), PeerTerms).of(**tables)
        elif fitting := [m for m in FILES if tables.keys() <= m.model_fields.keys()]:
            fitting[0].model_validate(tables)
        elif "statistics" in tables:
            StatisticsTerms.load(path.rename(tmp_path / "terms.toml"), parties=3)
        elif "tool" in tables:
            assert tables["tool"].keys() == {"pytest"}
        elif "budgets" in tables:  # the changes to the role's configuration above
            changed = before | tables
            path.write_text(tomli_w.dumps(changed), encoding="utf-8")
            load_config(path)
        else:
            usual = {"data": {"source": "wine"}, "network": {"runtime": "simulated"}}
            make_scenario({**usual, "parties": {"count": 12}, **tables})


def test_commands_in_a_sentence_or_a_help_text_exist() -> None:
    """Each command in a sentence or a help text exists and has the options that are named."""
    texts = (re.sub(r"\\\n *", "", command.help or "") for command in _commands(COMMAND))
    helped = [line for text in texts for line in re.findall(r"(?m)^ *(veilring .+)$", text)]
    assert len(helped) > 40
    said = (PROSE.findall(page.read_text(encoding="utf-8")) for page in pages())
    for shown in chain(helped, *said):
        _look_up(shown)


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for each in _below(command).values():
        yield from _commands(each)


def _below(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name, including those created on use."""
    if not hasattr(command, "list_commands"):
        return {}
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def _look_up(shown: str) -> None:
    command, words = COMMAND, shlex.split(shown, comments=True)[1:]
    while words and words[0] in _below(command):
        command = _below(command)[words.pop(0)]
    assert not (words and hasattr(command, "commands")), f"{shown}: no such command"
    options = {name for parameter in command.params for name in parameter.opts}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert named - {"--help"} <= options, shown


def _type(text: str, folder: Path) -> None:
    page = folder / "pages" / "page.md"
    page.parent.mkdir()
    page.write_text(text, encoding="utf-8")
    type_page(page, folder)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "line 1: .*ended with 1"),
        ("```sh\nfalse | cat\n```\n", "ended with 1"),
        ("\n```python\nimport nothing_of_that_name\n```\n", "line 2: .*ended with 1"),
        ("```console\n$ echo one\ntwo\n```\n", "and prints\none"),
        ("```console\n$ echo one; echo two\none\n```\n", "and prints\none\ntwo"),
        (
            "```console\n$ echo '│ 1 │'; echo '│ 2 │'\n│ 1 │ │ 2 │\n```\n",
            "and prints\n│ 1 │\n│ 2 │",
        ),
        ("```console\n$ true\nveilring: it failed\n```\n", "ended with 0"),
        ("<!-- in CI: 1 for 2 -->\n```sh\necho 3\n```\n", "there is no 2"),
        ("<!-- same: page.md -->\n```sh\necho > page.md\n```\n", "page.md is not what"),
        ("```sh\nveilring serve nothing.toml\ntrue\n```\n", "does not become ready"),
    ],
)
def test_a_wrong_output_is_detected(text: str, wrong: str, tmp_path: Path) -> None:
    """A page whose output differs from the shown one is refused, with the line."""
    with pytest.raises(Mistyped, match=f"(?s)page.md, {wrong}|{wrong}"):
        _type(text, tmp_path)


def test_comments_prepare_a_block(tmp_path: Path) -> None:
    """Before a block runs, its files are written, other commands run, and words are replaced."""
    _type(
        "<!-- file: a/b.txt -->\n```text\nport 7311 of ada.example\n```\n\n"
        "<!-- first: echo first > log -->\n<!-- in CI: two for 2 -->\n"
        "<!-- with: c.csv from iris -->\n"
        "```sh\necho 2 >> log\ncat c.csv > copy\n```\n\n"
        "<!-- by hand: it would fail -->\n```sh\nfalse\n```\n\n"
        "```console\n$ cat log\nfirst\n…o\n$ head -n 1 copy\nsepal…\n```\n",
        tmp_path,
    )
    assert (tmp_path / "log").read_text() == "first\ntwo\n"
    words = (tmp_path / "a" / "b.txt").read_text().split()
    assert words[1] != "7311"
    assert words[1].endswith("1")
    assert words[3] == "127.0.0.1"


def test_progress_and_installations_are_not_typed(tmp_path: Path) -> None:
    """Progress on standard error is no output, and a line is typed without its installations."""
    installs = "python3 -m venv .venv && .venv/bin/pip install -q '.[test]' -c constraints.txt"
    _type(
        "```console\n$ echo 'Comparing: 1,043 of 2,057' >&2; echo one\none\n```\n\n"
        f"```sh\n{installs} && .venv/bin/python -c 'print(1)' > out\n```\n",
        tmp_path,
    )
    assert (tmp_path / "out").read_text() == "1\n"
