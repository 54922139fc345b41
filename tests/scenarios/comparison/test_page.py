"""The page and the picture: valid, complete, and with each number of the comparison."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.scenarios.reporting.pages import Page

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
from veilring.scenarios.reporting.charts import ACCURACY_HEIGHT, accuracy_chart


@pytest.fixture(scope="module")
def html(comparison: SystemComparison) -> str:
    """Return the page."""
    return render_page(comparison)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    """Return the page as text, after checking its tags."""
    return Page(html)


class TestPage:
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

    def test_loads_nothing(self, page: Page, html: str) -> None:
        """There are no scripts, and no addresses except that of the SVG namespace."""
        assert "script" not in page.tags
        addresses = set(re.findall(r"https?://[^\"' )]+", html))
        assert addresses == {"http://www.w3.org/2000/svg"}
        assert not any(
            name in {"src", "href"} and value != "data:," for name, value in page.attributes
        )

    def test_is_well_structured(self, page: Page) -> None:
        """One top-level heading, no skipped level, unique ids, described pictures."""
        assert page.headings[0] == 1
        assert page.headings.count(1) == 1
        assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
        assert len(page.ids) == len(set(page.ids))
        assert page.described == [
            "accuracy-chart",
            "leakage-private-knn-chart",
            "leakage-rank-search-chart",
            "bytes-chart",
        ]

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
