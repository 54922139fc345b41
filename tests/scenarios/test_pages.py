"""Folders of runs, and pages: their content, structure and independence of other resources."""

import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from tests.scenarios.reporting.pages import Page
from tests.testing.auditing.planted import AUDIT

from veilring.errors import Deadlock, InputError, RunFailed
from veilring.measures import NUMBERS, Measures
from veilring.nodes.journal import Journal, Mark
from veilring.nodes.run import Failure
from veilring.protocols.ring.attacks.findings import RingFindings
from veilring.scenarios import Report, Scenario, load_scenario, run_scenario
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.decision import RULE
from veilring.scenarios.comparison.page import (
    MEASURES,
    cells,
    headings,
    limits,
    promises,
    render_page,
    render_picture,
)
from veilring.scenarios.report import accuracies
from veilring.scenarios.reporting import RunFolder, read_folder, write_failure
from veilring.scenarios.reporting.charts import ACCURACY_HEIGHT, ARROWS_MAX, accuracy_chart
from veilring.scenarios.reporting.page import render
from veilring.testing.auditing.findings import render_page as render_audit

COST_CHARTS = ["party-chart", "kind-chart", "round-chart"]
LEAKAGE_CHARTS = [f"leakage-{system}-chart" for system in ("private-knn", "rank-search")]
PICTURES = {
    "finished": ["accuracy-chart", *COST_CHARTS, "leakage-chart", "spacetime"],
    "crashed": [*COST_CHARTS, "spacetime"],
    "of_role": [*COST_CHARTS, "spacetime"],
    "comparison": ["accuracy-chart", *LEAKAGE_CHARTS, "bytes-chart"],
    "audit": [],
}
CONTROLLED = "controlled by an adversary"
REPEATS = 6  # of a run of some 400 messages: more than are drawn
TRICK = "<script>alert('&')</script>"


@pytest.fixture
def run(finished: Path) -> RunFolder:
    """Return a successful run."""
    return read_folder(finished)


@pytest.fixture(scope="module")
def page(comparison: SystemComparison) -> Page:
    """Return the page of a comparison."""
    return Page(render_page(comparison))


def test_a_written_folder_is_read_back(finished: Path) -> None:
    """Report and trace are exact: a second run of the same seed is equal to them."""
    run, journal = read_folder(finished), Journal()
    assert isinstance(run.scenario, Scenario)
    report = run_scenario(run.scenario, journal=journal)
    assert run.report is not None
    seconds = {name: getattr(run.report, name) for name in ("seconds", "start_seconds")}
    assert run.report.as_json() == report.as_json() | seconds
    assert run.messages == tuple(journal.messages)
    assert (run.name, run.failure, run.marks) == ("finished", None, ())


def test_a_failure_reveals_no_data(tmp_path: Path) -> None:
    """Only errors of the package keep their text; a role's own errors keep the name."""
    waiting = "every party is waiting and no message is in flight: a waits for b"
    parties = {"a": "ValueError"}
    for error, failure in (
        (Deadlock(("a waits for b",)), Failure("Deadlock", waiting, {})),
        (RunFailed({"a": ValueError("row 7")}), Failure("RunFailed", "a: ValueError", parties)),
    ):
        write_failure(error, load_scenario("wine"), Journal(), tmp_path)
        run = read_folder(tmp_path)
        assert (run.failure, run.messages) == (failure, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("report.json", b"{}"),
        ("report.json", b"[]"),
        ("report.json", b"not json"),
        ("versions.json", b'{"numpy": 2}'),
        ("events.json", b'[{"seconds": "soon"}]'),
        ("scenario.toml", b"[data"),
        ("scenario.toml", b"\xff"),
        ("trace.parquet", b"PAR1"),
    ],
)
def test_a_foreign_file_is_refused(
    name: str, content: bytes, finished: Path, tmp_path: Path
) -> None:
    """The error names the file, for any content and if it is missing."""
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    for damage in (lambda path: path.write_bytes(content), Path.unlink):
        damage(folder / name)
        with pytest.raises(InputError, match=name):
            read_folder(folder)


def test_a_foreign_table_is_refused(finished: Path, tmp_path: Path) -> None:
    """A foreign table is refused, and so is one with a message that neither end recorded."""
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    frame = pl.read_parquet(folder / "trace.parquet")
    never = dict.fromkeys(("sent_seconds", "received_seconds"), pl.lit(None, pl.Float64))
    for wrong in (frame.drop("kind"), frame.with_columns(**never)):
        wrong.write_parquet(folder / "trace.parquet")
        with pytest.raises(InputError, match=r"trace\.parquet"):
            read_folder(folder)


def _html(name: str, request: pytest.FixtureRequest) -> str:
    """Return the page of a run, of a comparison or of an audit."""
    if name == "audit":
        return render_audit(AUDIT)
    made = request.getfixturevalue(name)
    return render_page(made) if name == "comparison" else render(read_folder(made))


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_is_one_well_structured_file(name: str, request: pytest.FixtureRequest) -> None:
    """It loads nothing, is equal each time, describes pictures, and skips no level of headings."""
    html = _html(name, request)
    assert _html(name, request) == html
    page = Page(html)
    loading = {"img", "iframe", "object", "embed", "image", "use", "base", "form"}
    assert not loading & set(page.tags)
    is_report = name in {"finished", "crashed", "of_role"}
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-") is is_report
    assert ("script" in page.tags) is is_report
    references = {v for name, v in page.attributes if name in {"src", "href", "xlink:href"}}
    assert references == {"data:,"}  # no icon is asked for
    addresses = {value for _, value in page.attributes if "//" in value}
    expected = {"http://www.w3.org/2000/svg"} if PICTURES[name] else set()  # a name, no place
    assert addresses == expected
    assert not re.search(r"url\((?!#)|@import|@font-face", html)
    assert page.described == PICTURES[name]
    assert len(set(page.ids)) == len(page.ids)
    assert (page.headings[0], page.headings.count(1)) == (1, 1)
    assert all(following <= level + 1 for level, following in pairwise(page.headings))


def test_foreign_text_stays_text(run: RunFolder) -> None:
    """Names, settings and marks add only text to the page."""
    tricked = replace(
        run,
        scenario=run.scenario.model_copy(update={"name": TRICK, "description": TRICK}),
        versions={TRICK: TRICK},
        marks=(Mark(0.0, "party-1", TRICK),),
        messages=tuple(message._replace(kind=TRICK) for message in run.messages),
    )
    page = Page(render(tricked))
    assert page.tags.count("script") == 2  # the data, and what steps through them
    assert page.text.count(TRICK) > 5


def test_numbers_are_those_of_the_report(run: RunFolder) -> None:
    """Accuracy, measures, measured and forecast cost, and leakage equal those in `report.json`.

    The numbers beside a chart add up to the cost, and those by round exclude set-up. All settings
    and versions are listed, and there are no sections on a coalition or faults without them.
    """
    page, report = Page(render(run)), run.report
    assert isinstance(report, Report)
    assert report.leakage is not None
    shares = ("accuracy", "reference_accuracy", "majority_accuracy", "agreement")
    shown = [row[1] for row in page.tables["accuracy-table"]]
    assert shown == [f"{getattr(report, share):.1%}" for share in shares]
    measures = report.measures
    assert isinstance(measures, Measures)
    shown = [row[1] for row in page.tables["measures-table"]]
    assert shown == [str(measures.number(name)) for name in NUMBERS]
    _, *cells = page.tables["confusion-table"]
    assert [row[1:-1] for row in cells] == [[f"{n:,}" for n in row] for row in measures.confusion]
    assert [row[-1] for row in cells] == [str(recall) for recall in measures.recalls]
    _, *bins = page.tables["reliability-table"]
    assert [row[1:] for row in bins] == [
        [str(each.queries), f"{each.probability:.1%}", str(each.right)]
        for each in measures.reliability
    ]
    cost = report.cost
    assert [row[1:] for row in page.tables["cost-table"][1:]] == [
        [f"{getattr(of, name):,}" for of in (cost, report.forecast)]
        for name in ("rounds", "depth", "messages", "bytes", "setup_messages", "setup_bytes")
    ]
    for chart in ("party", "kind", "round"):
        rows = page.tables[f"{chart}-table"][1:]
        sums = [sum(int(row[column].replace(",", "")) for row in rows) for column in range(1, 5)]
        setup = [0, 0] if chart == "round" else [cost.setup_messages, cost.setup_bytes]
        assert sums == [cost.messages, cost.bytes, *setup]
    leaked = {row[0]: row[1:3] for row in page.tables["leakage-table"][1:]}
    exposure = report.leakage.estimates["exposure"]
    low, high = (exposure.value + side * 1.96 * exposure.standard_error for side in (-1, 1))
    assert leaked["exposure"] == [f"{exposure.value:.2%}", f"{low:.2%} to {high:.2%}"]
    assert [row[0] for row in page.tables["versions"]] == list(run.versions)
    for words in (report.transcript, str(report.seed), "count = 12", "seed = 3"):
        assert words in page.text
    assert not {"coalition", "troubles"} & set(page.ids)


def test_a_failed_run_shows_its_error_first(crashed: Path) -> None:
    """Its folder has the error, each party's outcome and the trace; the page has no findings."""
    run = read_folder(crashed)
    assert run.report is None
    assert run.failure is not None
    assert run.failure.error == "RunFailed"
    assert "party-9 was lost" in run.failure.message
    assert set(run.failure.parties) == set(run.scenario.parties.all)
    marked = [(mark.kind, mark.party) for mark in run.marks]
    assert {party for kind, party in marked if kind == "lost"} == {"party-9"}
    assert {party for kind, party in marked if kind == "coalition"} == {"party-3", "party-7"}
    assert run.marks == tuple(sorted(run.marks))
    assert any(message.received_seconds is None for message in run.messages)
    page = Page(render(run))
    assert page.text.index("The run failed.") < page.text.index("All settings")
    for words in ("party-9 was lost", "party lost", "party stopped", "never received", CONTROLLED):
        assert words in page.text
    happened = page.tables["marks-table"][1:]
    assert len(happened) == len(run.marks)
    assert ["1.100 s", "party-9", "lost: it crashed"] in happened
    assert not {"coalition-table", "accuracy-table", "leakage-table"} & set(page.tables)
    page = Page(render(replace(run, messages=(), marks=())))
    assert page.described == []
    assert "No messages were recorded." in page.text
    assert "No fault and no adversary was recorded." in page.text


def test_a_coalitions_findings_and_a_crash_are_shown(recovered: Path) -> None:
    """The page marks members, and has findings for each victim, the fault and its wasted work."""
    run = read_folder(recovered)
    page, report = Page(render(run)), run.report
    assert isinstance(report, Report)
    assert report.recovery is not None
    found = report.coalition
    assert isinstance(found, RingFindings)
    told = {row[0]: row[1:] for row in page.tables["coalition-table"]}
    assert told.pop("coalition")[0] == "4 parties"
    assert all(member in page.tables["coalition-table"][0][2] for member in found.members)
    assert told.pop("votes exposed")[0] == f"{found.exposed} of {found.honest}"
    assert told.pop("recurred")[0] == f"{found.named.recurred}"
    claims = {"correct claims", "correct likely claims", "distances located"}
    assert set(told) == {"vote sums", *claims, "owners named", "with failed attempts"}
    victims = page.tables["victims-table"][1:]
    expected = [[victim.party, f"{victim.votes}"] for victim in found.victims]
    assert [[row[0], row[3]] for row in victims] == expected
    assert CONTROLLED in page.text
    assert [row[:2] for row in page.tables["troubles-table"]] == [
        ["faults", "1 of 1 took effect"],
        ["left out", "party-9"],
        ["wasted", f"{report.recovery.messages:,} messages"],
    ]
    assert page.tables["faults-table"][1:] == [["crash of party-9 at 1.500 s", "yes"]]
    of_party_9 = [row[2] for row in page.tables["marks-table"] if row[1] == "party-9"]
    assert of_party_9 == ["fault: crash", "lost: it crashed", "left out: the others ask again"]


def test_many_messages_are_sampled_with_a_note(run: RunFolder) -> None:
    """The numbers of drawn and of all messages are given; sums include all."""
    several = tuple(
        message._replace(session=f"{number:02}")
        for number in range(REPEATS)
        for message in run.messages
    )
    page = Page(render(replace(run, messages=several)))
    drawn = re.search(r"The diagram shows ([\d,]+) of ([\d,]+) messages", page.text)
    assert drawn is not None
    shown, whole = (int(words.replace(",", "")) for words in drawn.groups())
    assert whole == REPEATS * len(run.messages)
    assert shown == len(page.tables["spacetime-table"][1:]) <= ARROWS_MAX
    arrows = [value for name, value in page.attributes if (name, value[:5]) == ("class", "arrow")]
    assert len(arrows) < ARROWS_MAX + 20  # the legend has some
    assert "sampled" not in Page(render(run)).ids


def test_a_comparison_states_its_numbers_and_reasons(
    page: Page, comparison: SystemComparison
) -> None:
    """The page has every number of every line, all that decides in words, and how to repeat it.

    In words are the decision with what more trust adds, incomparable promises, the rule, the
    limits of each searched line, each system's guarantee, and the reason for omitting the tree
    walk. That a seed hides nothing is said once.
    """
    head, *rows = page.tables["lines-table"]
    assert head == list(headings(comparison.facts.wording))
    assert rows == [cells(line, comparison.decision) for line in comparison.lines]
    for line, row in zip(comparison.lines, rows, strict=True):
        assert row[2] == f"{line.accuracy.mean:.1%}"
        if line.cost is not None:
            assert row[9] == f"{line.cost.bytes + line.cost.setup_bytes:,}"
    decision, said = comparison.decision, limits(comparison)
    head, *rows = page.tables["measures-table"]
    assert head[1:] == [name.replace("-", " ") for name in MEASURES]
    shown = [line for line in comparison.lines if not line.in_hindsight]
    for line, row in zip(shown, rows, strict=True):
        assert row[0] == line.label
        assert row[1:] == cells(line, decision, MEASURES)[len(headings(comparison.facts.wording)) :]
    assert len(said) == sum(line.limits is not None for line in comparison.lines)
    for words in (
        *(*decision.says, decision.cannot, *RULE, *said),
        *promises(comparison).values(),
        *(comparison.left_out[0].why, comparison.facts.bounds, 'distribution = "lognormal"'),
    ):
        assert words in page.text
    assert page.tables["rules-table"] == [list(rule) for rule in comparison.rules]
    versions = dict(page.tables["versions"])
    assert versions["seed"].startswith(str(comparison.question.seed))
    assert versions["veilring"] == comparison.versions["veilring"]
    assert page.text.count(comparison.seeded) == 1
    notes = [line.privacy.note for line in comparison.lines if line.privacy is not None]
    assert notes
    assert not any("seed" in note for note in notes)


def test_a_comparison_states_what_is_wrong_with_it(
    page: Page, comparison: SystemComparison
) -> None:
    """A δ may be too large for the rows, on the page and in JSON, and no system worth its cost."""
    warning = "δ is too large for 20,000 rows"
    assert "δ is too large" not in page.text
    large = replace(comparison, facts=replace(comparison.facts, train=20_000))
    assert warning in Page(render_page(large)).text
    assert warning in large.as_json()["delta_warning"]
    none = replace(comparison.decision, pick=None, says=("None.",))
    page = Page(render_page(replace(comparison, decision=none)))
    assert ("class", "none") in page.attributes
    assert ("class", "chosen") not in page.attributes


def test_a_line_above_the_pooled_classifier_loses_nothing(comparison: SystemComparison) -> None:
    """The sentence on its limits then has no shares of a loss."""
    line = next(line for line in comparison.lines if line.limits is not None)
    for mean, says in ((-0.028, "and is 2.8 points above it."), (0.01, "Of the loss compared")):
        loss = line.loss._replace(mean=mean)
        (said,) = limits(replace(comparison, lines=(comparison.pooled, replace(line, loss=loss))))
        assert says in said
        assert "-0.0" not in said


def test_a_run_that_is_no_better_than_the_majority_class_says_so(finished: Path) -> None:
    """The words follow the accuracy, also if both are equal."""
    report = read_folder(finished).report
    assert isinstance(report, Report)
    assert "majority" not in accuracies(report)[0].meaning
    useless = replace(report, accuracy=report.majority_accuracy)
    assert accuracies(useless)[0].meaning.endswith("; no better than the majority class")


def test_the_picture_has_a_point_for_each_line_with_an_epsilon(
    comparison: SystemComparison,
) -> None:
    """They are at accuracy and interval, in order of ε, in a file with a legend of all systems."""
    shown = [line for line in comparison.lines if not line.in_hindsight]
    root = ET.fromstring(render_picture(comparison))
    assert root.get("viewBox") == f"0 0 720 {root.get('height')}"
    assert all(line.name in "".join(root.itertext()) for line in shown)
    drawn = accuracy_chart(shown, comparison.question.epsilon)
    bounded = [line for line in shown if line.epsilon is not None]
    top, bottom = drawn.down[0], drawn.down[-1]
    low = float(bottom.text.rstrip("%")) / 100
    assert top.text == "100%"
    places: dict[float | None, list[float]] = {1: [], 2: []}
    for point, line in zip(drawn.points, bounded, strict=True):
        share = 1 - (point.y - top.at) / (bottom.at - top.at) * (1 - low)
        assert share == pytest.approx(line.accuracy.mean)
        assert 0 <= point.top <= point.y <= point.bottom <= ACCURACY_HEIGHT
        assert 0 <= point.x <= 100
        places[line.epsilon].append(point.x)
    assert max(places[1]) < min(places[2])
    bands = accuracy_chart(comparison.lines, comparison.question.epsilon).bands
    assert len(bands) == 2
    assert "PP-kNN" in bands[0].label
    assert bands[0].label.startswith(comparison.pooled.name)
