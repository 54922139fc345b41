"""Pages: their content, their structure, and their independence of other resources."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.scenarios.reporting.pages import Page
from tests.testing.auditing.planted import AUDIT

from veilring.nodes.journal import Mark
from veilring.protocols.ring.attacks.findings import RingFindings
from veilring.scenarios.comparison import SystemComparison
from veilring.scenarios.comparison.comparison import RULE
from veilring.scenarios.comparison.page import (
    COLUMNS,
    cells,
    limits,
    promises,
    render_page,
    render_picture,
)
from veilring.scenarios.reporting import RunFolder, read_folder
from veilring.scenarios.reporting.charts import ACCURACY_HEIGHT, ARROWS_MAX, accuracy_chart
from veilring.scenarios.reporting.page import render
from veilring.testing.auditing.findings import render_page as render_audit

COST_CHARTS = ["party-chart", "kind-chart", "round-chart"]
CHARTS = ["accuracy-chart", *COST_CHARTS, "leakage-chart", "spacetime"]
REPEATS = 6  # of a run of some 400 messages: more than are drawn
TRICK = "<script>alert('&')</script>"


@pytest.fixture
def run(finished: Path) -> RunFolder:
    """Return a successful run."""
    return read_folder(finished)


@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("finished", CHARTS),
        ("crashed", [*COST_CHARTS, "spacetime"]),
        (
            "comparison",
            [
                "accuracy-chart",
                "leakage-private-knn-chart",
                "leakage-rank-search-chart",
                "bytes-chart",
            ],
        ),
        ("audit", []),
    ],
)
def test_a_page_is_one_well_structured_file(
    name: str, pictures: list[str], request: pytest.FixtureRequest
) -> None:
    """It loads nothing; pictures are described, ids are unique, and headings skip no level."""
    if name == "audit":
        html = render_audit(AUDIT)
    else:
        made = request.getfixturevalue(name)
        html = render_page(made) if name == "comparison" else render(read_folder(made))
    page = Page(html)
    loading = {"img", "iframe", "object", "embed", "image", "use", "base", "form"}
    assert not loading & set(page.tags)
    is_report = name in {"finished", "crashed"}
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-") is is_report
    assert ("script" in page.tags) is is_report
    references = {v for name, v in page.attributes if name in {"src", "href", "xlink:href"}}
    assert references == {"data:,"}  # no icon is asked for
    addresses = {value for _, value in page.attributes if "//" in value}
    assert addresses == ({"http://www.w3.org/2000/svg"} if pictures else set())  # a name, no place
    assert not re.search(r"url\((?!#)|@import|@font-face", html)
    assert page.described == pictures
    assert len(set(page.ids)) == len(page.ids)
    assert (page.headings[0], page.headings.count(1)) == (1, 1)
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(following <= level + 1 for level, following in steps)


class TestSelfContained:
    """One file, and nothing else."""

    def test_equal_folders_give_equal_pages(self, run: RunFolder) -> None:
        """Nothing depends on the time or place of creation."""
        assert render(run) == render(run)

    def test_foreign_text_stays_text(self, run: RunFolder) -> None:
        """Names, settings and marks add only text to the page."""
        scenario = run.scenario.model_copy(update={"name": TRICK, "description": TRICK})
        tricked = replace(
            run,
            scenario=scenario,
            versions={TRICK: TRICK},
            marks=(Mark(0.0, "party-1", TRICK),),
            messages=tuple(message._replace(kind=TRICK) for message in run.messages),
        )
        page = Page(render(tricked))
        assert page.tags.count("script") == 2  # the data, and what steps through them
        assert page.text.count(TRICK) > 5


class TestContents:
    """The visible content of a page."""

    def test_numbers_are_those_of_the_report(self, run: RunFolder) -> None:
        """Accuracy, measured and forecast cost, and leakage equal those in `report.json`."""
        page, report = Page(render(run)), run.report
        assert report is not None
        assert report.leakage is not None
        shares = [row[1] for row in page.tables["accuracy-table"]]
        assert shares == [
            f"{share:.1%}"
            for share in (
                report.accuracy,
                report.reference_accuracy,
                report.majority_accuracy,
                report.agreement,
            )
        ]
        cost = {row[0]: row[1:] for row in page.tables["cost-table"][1:]}
        assert cost == {
            label: [f"{getattr(of, name):,}" for of in (report.cost, report.forecast)]
            for label, name in {
                "rounds, declared": "rounds",
                "rounds, measured": "depth",
                "messages": "messages",
                "bytes": "bytes",
                "set-up messages": "setup_messages",
                "set-up bytes": "setup_bytes",
            }.items()
        }
        leaked = {row[0]: row[1:3] for row in page.tables["leakage-table"][1:]}
        exposure = report.leakage.estimates["exposure"]
        low, high = (exposure.value + side * 1.96 * exposure.standard_error for side in (-1, 1))
        assert leaked["exposure"] == [f"{exposure.value:.2%}", f"{low:.2%} to {high:.2%}"]
        assert report.transcript in page.text
        assert str(report.seed) in page.text

    @pytest.mark.parametrize("chart", COST_CHARTS)
    def test_the_numbers_beside_a_chart_add_up(self, chart: str, run: RunFolder) -> None:
        """By party, kind and round they add up to the report's cost; rounds exclude set-up."""
        assert run.report is not None
        page, cost = Page(render(run)), run.report.cost
        rows = page.tables[chart.replace("chart", "table")][1:]
        sums = [sum(int(row[column].replace(",", "")) for row in rows) for column in range(1, 5)]
        setup = [0, 0] if chart == "round-chart" else [cost.setup_messages, cost.setup_bytes]
        assert sums == [cost.messages, cost.bytes, *setup]

    def test_settings_and_versions_are_listed(self, run: RunFolder) -> None:
        """The page contains all settings and versions needed to repeat the run."""
        page = Page(render(run))
        assert [row[0] for row in page.tables["versions"]] == list(run.versions)
        assert "count = 12" in page.text
        assert "seed = 3" in page.text

    def test_a_failed_run_shows_its_error_first(self, crashed: Path) -> None:
        """The error comes first; there is a diagram, and no accuracy or leakage."""
        run = read_folder(crashed)
        page = Page(render(run))
        assert page.text.index("The run failed.") < page.text.index("All settings")
        assert "party-9 was lost" in page.text
        for words in (
            "party lost",
            "party stopped",
            "never received",
            "controlled by an adversary",
        ):
            assert words in page.text
        happened = page.tables["marks-table"][1:]
        assert len(happened) == len(run.marks)
        assert ["1.100 s", "party-9", "lost: it crashed"] in happened

    def test_a_run_without_incidents_has_no_such_sections(self, run: RunFolder) -> None:
        """Without a coalition or faults there are no sections on them."""
        page = Page(render(run))
        assert not {"coalition", "troubles"} & set(page.ids)

    def test_a_coalitions_findings_are_shown(self, recovered: Path) -> None:
        """The page shows a coalition's findings for each victim, and marks its members."""
        run = read_folder(recovered)
        page, report = Page(render(run)), run.report
        assert report is not None
        found = report.coalition
        assert isinstance(found, RingFindings)
        told = {row[0]: row[1:] for row in page.tables["coalition-table"]}
        assert told["coalition"][0] == "4 parties"
        assert all(member in told["coalition"][1] for member in found.members)
        assert told["votes exposed"][0] == f"{found.exposed} of {found.honest}"
        assert told["recurred"][0] == f"{found.named.recurred}"
        assert set(told) == {
            "coalition",
            "votes exposed",
            "vote sums",
            "correct claims",
            "correct likely claims",
            "distances located",
            "owners named",
            "with failed attempts",
            "recurred",
        }
        victims = page.tables["victims-table"][1:]
        assert [row[0] for row in victims] == [victim.party for victim in found.victims]
        assert [row[3] for row in victims] == [f"{victim.votes}" for victim in found.victims]
        assert "controlled by an adversary" in page.text

    def test_a_crash_and_the_retry_are_shown(self, recovered: Path) -> None:
        """The page shows the fault, the parties left out, the wasted work, and their times."""
        run = read_folder(recovered)
        page, report = Page(render(run)), run.report
        assert report is not None
        assert report.recovery is not None
        wasted = f"{report.recovery.messages:,} messages"
        assert [row[:2] for row in page.tables["troubles-table"]] == [
            ["faults", "1 of 1 took effect"],
            ["left out", "party-9"],
            ["wasted", wasted],
        ]
        assert page.tables["faults-table"][1:] == [["crash of party-9 at 1.500 s", "yes"]]
        of_party_9 = [row[2] for row in page.tables["marks-table"] if row[1] == "party-9"]
        assert of_party_9 == ["fault: crash", "lost: it crashed", "left out: the others ask again"]

    def test_a_failed_run_has_no_findings(self, crashed: Path) -> None:
        """The page of a failed run marks the colluding parties and shows no findings."""
        assert "coalition-table" not in Page(render(read_folder(crashed))).tables

    def test_many_messages_are_sampled_with_a_note(self, run: RunFolder) -> None:
        """The numbers of drawn and of all messages are given; sums include all."""
        several = tuple(
            message._replace(session=f"{number:02}")
            for number in range(REPEATS)
            for message in run.messages
        )
        page = Page(render(replace(run, messages=several)))
        drawn = re.search(r"The diagram shows ([\d,]+) of ([\d,]+) messages", page.text)
        assert drawn is not None
        assert drawn[2] == f"{REPEATS * len(run.messages):,}"
        assert int(drawn[1].replace(",", "")) <= ARROWS_MAX
        arrows = [
            value for name, value in page.attributes if (name, value[:5]) == ("class", "arrow")
        ]
        assert len(arrows) < ARROWS_MAX + 20  # the legend has some
        assert len(page.tables["spacetime-table"][1:]) == int(drawn[1].replace(",", ""))
        assert "sampled" not in Page(render(run)).ids

    def test_a_run_without_messages_has_a_page(self, crashed: Path) -> None:
        """A run that failed before its first message has a page."""
        page = Page(render(replace(read_folder(crashed), messages=(), marks=())))
        assert page.described == []
        assert "No messages were recorded." in page.text
        assert "No fault and no adversary was recorded." in page.text


@pytest.fixture(scope="module")
def page(comparison: SystemComparison) -> Page:
    """Return the page of a comparison."""
    return Page(render_page(comparison))


class TestComparison:
    """The page."""

    def test_has_every_number_of_every_line(self, page: Page, comparison: SystemComparison) -> None:
        """They are listed row by row and column by column."""
        head, *rows = page.tables["lines-table"]
        assert head == list(COLUMNS)
        assert rows == [list(cells(line).values()) for line in comparison.lines]
        for line, row in zip(comparison.lines, rows, strict=True):
            assert row[2] == f"{line.accuracy.mean:.1%}"
            if line.cost is not None:
                assert row[8] == f"{line.cost.bytes + line.cost.setup_bytes:,}"

    def test_states_the_recommendation_and_its_reason(
        self, page: Page, comparison: SystemComparison
    ) -> None:
        """The page has the sentence, an owner's gain, incomparable promises, and the rule."""
        choice = comparison.choice
        for said in (choice.says, choice.owner, choice.cannot, *RULE):
            assert said in page.text

    def test_states_a_delta_that_is_too_large_for_the_rows(
        self, page: Page, comparison: SystemComparison
    ) -> None:
        """From 10,000 rows on, a δ of 1e-5 has a warning on the page and in JSON."""
        assert "δ is too large" not in page.text
        large = replace(comparison, facts=replace(comparison.facts, train=20_000))
        assert "δ is too large for 20,000 rows" in Page(render_page(large)).text
        assert "δ is too large for 20,000 rows" in large.as_json()["delta_warning"]

    def test_states_the_limit_of_each_line(self, page: Page, comparison: SystemComparison) -> None:
        """Each searched line has a sentence with the three parts of its loss."""
        said = limits(comparison)
        assert len(said) == sum(line.limits is not None for line in comparison.lines)
        for sentence in said:
            assert sentence in page.text

    def test_states_promises_and_omissions(self, page: Page, comparison: SystemComparison) -> None:
        """Each system's guarantee is in words, with the reason for omitting the tree walk."""
        for promise in promises(comparison).values():
            assert promise.protects in page.text
            assert promise.measure in page.text
        assert comparison.left_out[0].why in page.text

    def test_states_once_that_a_seed_hides_nothing(
        self, page: Page, comparison: SystemComparison
    ) -> None:
        """The sentence precedes the guarantees, and is not repeated."""
        assert page.text.count(comparison.seeded) == 1
        notes = [line.privacy.note for line in comparison.lines if line.privacy is not None]
        assert notes
        assert not any("seed" in note for note in notes)

    def test_has_everything_to_repeat_the_comparison(
        self, page: Page, comparison: SystemComparison
    ) -> None:
        """The page has rules, ranges, seed, network and versions."""
        assert page.tables["rules-table"] == [list(rule) for rule in comparison.rules]
        versions = dict(page.tables["versions"])
        assert versions["seed"].startswith(str(comparison.question.seed))
        assert versions["veilring"] == comparison.versions["veilring"]
        assert comparison.facts.bounds in page.text
        assert 'distribution = "lognormal"' in page.text

    def test_states_that_none_is_worth_its_cost(self, comparison: SystemComparison) -> None:
        """If no system is worth its cost, the report states it and marks no line."""
        none = replace(comparison.choice, system=None, epsilon=None, says="None.")
        page = Page(render_page(replace(comparison, choice=none)))
        assert ("class", "none") in page.attributes
        assert ("class", "chosen") not in page.attributes


class TestPicture:
    """Accuracy over ε."""

    def test_is_a_separate_file(self, comparison: SystemComparison) -> None:
        """It is well-formed, of fixed size, printable, with a legend of all systems."""
        root = ET.fromstring(render_picture(comparison))
        assert root.get("viewBox") == f"0 0 720 {root.get('height')}"
        texts = "".join(root.itertext())
        for line in comparison.lines:
            assert (line.name in texts) or line.in_hindsight

    def test_has_a_point_for_each_line_with_an_epsilon(self, comparison: SystemComparison) -> None:
        """It has the line's accuracy and interval; points are grouped by ε, ascending."""
        shown = [line for line in comparison.lines if not line.in_hindsight]
        drawn = accuracy_chart(shown, comparison.question.epsilon)
        bounded = [line for line in shown if line.epsilon is not None]
        assert len(drawn.points) == len(bounded)
        top, bottom = drawn.down[0], drawn.down[-1]
        low = float(bottom.text.rstrip("%")) / 100
        assert top.text == "100%"
        for point, line in zip(drawn.points, bounded, strict=True):
            share = 1 - (point.y - top.at) / (bottom.at - top.at) * (1 - low)
            assert share == pytest.approx(line.accuracy.mean)
            assert 0 <= point.top <= point.y <= point.bottom <= ACCURACY_HEIGHT
            assert 0 <= point.x <= 100
        first = [
            point.x for point, line in zip(drawn.points, bounded, strict=True) if line.epsilon == 1
        ]
        second = [
            point.x for point, line in zip(drawn.points, bounded, strict=True) if line.epsilon == 2
        ]
        assert max(first) < min(second)

    def test_draws_equal_accuracies_without_epsilon_once(
        self, comparison: SystemComparison
    ) -> None:
        """The ring's line equals the pooled classifier's."""
        bands = accuracy_chart(comparison.lines, comparison.question.epsilon).bands
        assert len(bands) == 2
        assert "PP-kNN" in bands[0].label
        assert bands[0].label.startswith(comparison.pooled.name)
