"""The pages and examples of the documentation agree with the code."""

import dataclasses
import doctest
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Final

import numpy as np
import pytest
from docs._ext.starter import Starter
from docs._ext.tables import key_rows, label_cells, limits, system_rows
from myst_parser.mdit_to_docutils.base import default_slugify

import veilring as vr
from veilring.deployment.examples.folder import write_table
from veilring.protocols.registry import BUILT_IN
from veilring.protocols.release.algorithm.classifiers import _KINDS
from veilring.protocols.release.model import ReleasedModel, _Document
from veilring.randomness import Streams
from veilring.scenarios import Scenario, make_scenario
from veilring.scenarios.network import make_faults
from veilring.simulation.faults import FAULT_CLASSES, FAULT_KINDS
from veilring.testing.auditing.findings import QUICK
from veilring.testing.hiding import RUNS_MIN

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
SESSION = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LISTING = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
# An address of another site is for `linkcheck`.
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
EMPTY = re.compile(r"(?<!!)\[\s*\]\([^)]*\)")
SPACED = re.compile(r"\]\([^)\s]*\s+(?![\"'])[^)]*\)|\]\s+\([^)\s]+\.(?:md|py|toml)[^)\s]*\)")
# Drawn when the site is built, which finds a missing picture: a clone does not have the folder.
MADE = ROOT / "docs" / "_made"


def _read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the repository."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [page for page in PAGES if SESSION.search(_read(page))], ids=lambda page: page.stem
)
def test_sessions_on_a_page_are_true(page: Path) -> None:
    """Each `>>>` statement of a page prints the shown output."""
    text = "\n".join(SESSION.findall(_read(page)))
    session = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    failures: list[str] = []
    doctest.DocTestRunner().run(session, out=failures.append)
    assert not failures, "".join(failures)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its targets, and its headings as GitHub and MyST name them."""
    text = FENCED.sub("", _read(page))
    headings = re.findall(r"^#{1,3} (.+?)\s*$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    targets = re.findall(r"^\((\S+)\)=$", text, re.MULTILINE)
    return {*targets, *(default_slugify(heading.replace("`", "")) for heading in plain)}


def _broken_links(page: Path) -> list[str]:
    """Return the links of a page to missing files or anchors."""
    text = CODE.sub("", FENCED.sub("", _read(page)))
    broken = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target.parent == MADE:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_file_and_an_anchor(page: Path) -> None:
    """Links have a text, which only Sphinx fills in, and an address without spaces or line ends.

    They lead to existing files and anchors, even within sentences and across lines. A reader of the
    page's source, where an include shows nothing, finds the file by a link.
    """
    whole = _read(page)
    text = FENCED.sub("", whole)
    assert not EMPTY.search(whole)
    assert not SPACED.search(text)
    assert _broken_links(page) == []
    included = re.findall(r"^```\{literalinclude\} (\S+)$", whole, re.MULTILINE)
    assert set(included) <= set(LINK.findall(text))


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    """Links in sentences, over two lines, in tables and within the page are checked, not code."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One `heading`\n\nSee [a](page.md#one-heading), [b\nc](page.md#two) and [d](#three).\n\n"
        "| [e](gone.md) | `[f](gone.md)` |\n\n```text\n[g](gone.md)\n```\n\n(three)=\n\n## Four\n",
        encoding="utf-8",
    )
    assert _broken_links(page) == ["page.md#two", "gone.md"]


def test_a_cell_has_the_name_of_its_column() -> None:
    """On a narrow screen, each cell of a table shows the name of its column."""
    head = "<thead><tr><th>key</th><th><p>what it <em>is</em></p></th></tr></thead>"
    row = "<tr><td>k</td><td><pre>a  b\n c</pre></td></tr>"
    labelled = label_cells(f'<table class="docutils">{head}<tbody>{row}</tbody></table>')
    assert '<td data-column="key">k</td>' in labelled
    assert '<td data-column="what it is"><pre>a  b\n c</pre></td>' in labelled


@pytest.mark.slow
def test_pages_are_built_with_their_own_extra() -> None:
    """The packages of the extra `docs` suffice to read all limits from the code."""
    hidden = """
        import sys
        from importlib.machinery import PathFinder

        from docs._ext import tables

        class Without(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name in tables.EXTRAS else PathFinder.find_spec(name, path, target)

        sys.meta_path[sys.meta_path.index(PathFinder)] = Without
        assert tables.absent() == list(tables.EXTRAS)
        print(len(list(tables.limits())))
    """
    made = _run(sys.executable, "-c", dedent(hidden))
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) == len(list(limits()))


def test_the_readme_shows_code_that_runs() -> None:
    """Each line of the README's listings is in a file that the tests run."""
    files = (ROOT / "docs/examples/class_counts.py", ROOT / "tests/docs/test_class_counts.py")
    known = set(chain(*(_read(file).splitlines() for file in files)))
    listings = LISTING.findall(_read("README.md"))
    assert len(listings) == 2
    for line in chain(*(listing.splitlines() for listing in listings)):
        assert line in known


def test_all_systems_are_described_in_one_order() -> None:
    """The pages of all systems have the same sections, in the same order."""
    order = ["Run it", "Threat model and guarantee", "How it works", "Cost"]
    order += ["When not to use it", "Sources"]
    for page in ROOT.glob("docs/protocols/*.md"):
        headings = re.findall(r"^## (.+)$", _read(page), re.MULTILINE)
        assert [heading for heading in headings if heading in order] == order, page.name


def test_every_limit_has_a_reason() -> None:
    """Each named limit of the package has its reason next to it."""
    found = {f"{limit.module}.{limit.name}": limit.reason for limit in limits()}
    assert len(found) > 30
    assert [name for name, reason in found.items() if not reason] == []


def test_every_key_of_a_scenario_is_on_its_page() -> None:
    """The page on scenarios describes each key of each section in a table."""
    page = _read("docs/how-to/scenarios.md")
    tables = set(Scenario.model_fields) - {"name", "description"}
    assert {table for table in tables if f"\n## {table}\n" not in page} == set()
    # The keys of the first are names of parties, and those of the second depend on the kind.
    for section in tables - {"adversaries", "faults"}:
        assert f"```{{scenario-keys}} {section}\n" in page
        assert all(meaning and allowed for _, _, allowed, meaning in key_rows(section))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_parameter_of_a_system_is_on_its_page(name: str) -> None:
    """Each parameter of a system is described in the table of exactly one page."""
    pages = [_read(page) for page in ROOT.glob("docs/protocols/*.md")]
    assert sum(f"```{{system-keys}} {name}\n" in page for page in pages) == 1
    assert all(meaning and allowed for _, _, allowed, meaning in system_rows(name))


def test_every_kind_of_fault_is_on_the_page_of_scenarios() -> None:
    """The page lists each kind of fault with exactly its keys, and a valid scenario with faults."""
    page = _read("docs/how-to/scenarios.md")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| .+ \|$", page, re.MULTILINE)
    assert sorted(kind for kind, _ in rows) == sorted(FAULT_CLASSES)
    values = {"extra_seconds": 1, "times": 2, "parties": ["party-1"], "party": "party-1"}
    values |= {"other": "party-2", "source": "party-1", "target": "party-2"}
    values |= {"sends": 2, "seconds": 3}
    listing = next(text for text in TOML.findall(page) if "[[faults]]" in text)
    tables = tomllib.loads(listing)["faults"]
    for kind, keys in rows:
        given = {name: values[name] for name in re.findall(r"`(\w+)`", keys)}
        until = {"end_seconds": 2} if FAULT_KINDS[kind].ends else {}
        tables.append({"kind": kind, "start_seconds": 1, **given, **until})
    settings = {"data": {"source": "wine"}, "network": {"runtime": "simulated"}}
    for table in tables:
        scenario = make_scenario({**settings, "parties": {"count": 12}, "faults": [table]})
        (fault,) = make_faults(scenario, scenario.parties.all, Streams(0))
        assert fault.kind == table["kind"]


def test_every_dependency_is_justified() -> None:
    """Each package in `pyproject.toml` has a line on the dependencies page."""
    page = _read("docs/dependencies.md")
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    groups = (project["dependencies"], *project["optional-dependencies"].values())
    packages = {re.split(r"[><=;[]", need)[0] for need in chain(*groups)} - {project["name"]}
    assert {name for name in packages if f"| `{name}` |" not in page} == set()


REFERENCE: Final = ROOT / "docs" / "api"
NAMES_MAX: Final = 227
# A directive with the options below it.
DIRECTIVE: Final = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", re.MULTILINE)
MEMBERS: Final = re.compile(r"^   :members:(.*)$", re.MULTILINE)


def listed() -> Iterator[object]:
    """Yield the objects that the pages list, without their members."""
    for page in REFERENCE.glob("*.md"):
        for kind, name, options in DIRECTIVE.findall(_read(page)):
            if kind != "module":
                home, _, last = name.rpartition(".")
                yield getattr(import_module(home), last)
                continue
            module, members = import_module(name), MEMBERS.search(options)
            assert members is not None, name
            given = members[1].replace(",", " ").split()
            own = [each for each in vars(module) if not each.startswith("_")]
            for each in given or getattr(module, "__all__", own):
                found = getattr(module, each)
                if given or getattr(found, "__module__", "").startswith(name):
                    yield found


def test_the_reference_lists_all_names_of_the_package_and_few_others() -> None:
    """Each name of `import veilring` is described on some page; what is not listed is private."""
    names, table = {id(each) for each in listed()}, _read(REFERENCE / "veilring.md")
    assert 100 < len(names) <= NAMES_MAX
    for name in set(vr.__all__) - {"__version__"}:
        found = getattr(vr, name)
        is_page = f"automodule:: {getattr(found, '__name__', '')}\n" in table
        assert is_page if isinstance(found, ModuleType) else id(found) in names, name
        assert f"`{name}`" in table


PAGE = ROOT / "docs/how-to/released-models.md"


@pytest.mark.parametrize("name", ["wine", "digits"])
@pytest.mark.parametrize("statistic", ["means", "lda"])
def test_ten_lines_label_as_veilring_does(
    name: str, statistic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's NumPy program labels like veilring, even for columns of zero width."""
    (listing,) = LISTING.findall(_read(PAGE))
    assert "veilring" not in listing
    (start,) = (n for n, line in enumerate(listing.splitlines()) if not line)
    assert len(listing.splitlines()) - start - 1 <= 10
    table = vr.load(name)
    system = vr.Release(epsilon=4.0, statistic=statistic)  # type: ignore[arg-type]  # one of its words
    model = vr.run(system, table.partition(3, seed=1), table.take(np.arange(2))).model
    assert isinstance(model, ReleasedModel)
    model.save(tmp_path / "model.json")
    write_table(tmp_path / "rows.csv", table)
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(listing, found)  # noqa: S102  (the code on the page)
    assert found["labels"] == model.predict(table).tolist()


def test_the_page_names_every_key_and_kind() -> None:
    """The page names each key of the file, and each classifier."""
    page, arrays = _read(PAGE), chain(*map(dataclasses.fields, _KINDS.values()))
    promised = {*vr.Promise.__dataclass_fields__} | {field.name for field in arrays}
    for name in promised | {*_Document.model_fields} | set(_KINDS):
        assert f"`{name}" in page, name


EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
AUDITS = [path for path in EXAMPLES if "audit(claims, quick=True)" in _read(path)]


@pytest.mark.docs
@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path not in AUDITS], ids=lambda path: path.stem
)
def test_an_example_prints_what_the_pages_show(example: Path, starter: Starter) -> None:
    """The output of each example equals its `.out` file exactly."""
    run = _run(str(starter.path / "module"), f"docs.examples.{example.stem}")
    assert run.stderr == ""
    assert run.stdout == _read(example.with_suffix(".out"))


@pytest.mark.docs
@pytest.mark.parametrize("example", AUDITS, ids=lambda path: path.stem)
def test_an_audit_prints_what_the_pages_show(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdicts are the same from the fewest runs that a comparison of two worlds may have.

    These are half of those of a quick audit. The leaks on the pages are in every run, and the other
    views say nothing: with half the runs, a leak is found if it is some 1.4 times as large.
    """
    fewest = dataclasses.replace(QUICK, runs=RUNS_MIN)
    monkeypatch.setattr("veilring.testing.auditing.QUICK", fewest)
    import_module(f"docs.examples.{example.stem}").main()
    assert capsys.readouterr().out == _read(example.with_suffix(".out"))
    assert _read(example).endswith('\nif __name__ == "__main__":\n    main()\n')
