"""Pages in a real browser: no overlaps or cuts, and working steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PHONE, SCREEN, Browser, needs_browser
from tests.scenarios.reporting.pages import in_flight, stand
from tests.testing.auditing.planted import AUDIT

from veilring.scenarios import Report
from veilring.scenarios.comparison.comparison import SystemComparison
from veilring.scenarios.comparison.page import render_page
from veilring.scenarios.reporting import read_folder
from veilring.scenarios.reporting.page import render
from veilring.scenarios.reporting.stepping import Story, build_story
from veilring.testing.auditing.findings import render_page as render_audit

pytestmark = needs_browser
NARROW = 360  # the narrowest phone
LOSING = ("crashed", "recovered", "world", "of_role")

_LEGIBLE = """(() => {
  const box = element => element.getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg text")].filter(text => box(text).width);
  const overlap = (one, other) => {
    const [a, b] = [box(one), box(other)];
    return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
      && b.top < a.bottom - 3;
  };
  return {
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    empty: [...document.querySelectorAll("svg[role=img]")]
      .filter(svg => box(svg).width < 300 || box(svg).height < 50).length,
    pictures: document.querySelectorAll("svg[role=img]").length,
    smallest: Math.min(12, ...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    overlapping: texts.flatMap((text, place) => texts.slice(place + 1)
      .filter(other => text.ownerSVGElement === other.ownerSVGElement && overlap(text, other))
      .map(other => text.textContent + " | " + other.textContent)),
    cut: [...document.querySelectorAll(".lines, #lines-table, .point")]
      .filter(table => box(table).right > innerWidth).length,
  };
})()"""
_OF_DIAGRAM = """(() => {
  const box = element => element.getBoundingClientRect();
  const plot = document.querySelector("svg[aria-labelledby^=spacetime]");
  const names = [...plot.querySelectorAll("text:has(title)")];
  return {
    names: names.length,
    room: Math.min(...names.map(name =>
      box(plot.querySelector(".lane")).left - box(name).right)),
    lines: plot.querySelectorAll(".arrow").length,
    corrupt: plot.querySelectorAll(".corrupt-name").length,
    gone: plot.querySelectorAll(".lane.gone").length,
    colours: new Set([...plot.querySelectorAll(".arrow")]
      .map(line => getComputedStyle(line).stroke)).size,
  };
})()"""


def _legible(browser: Browser, width: int) -> dict[str, Any]:
    """Require that nothing is cut off or overlaps; return the measures of the open page."""
    found: dict[str, Any] = browser.evaluate(_LEGIBLE)
    assert browser.complaints == []
    assert found["width"] == width
    assert found["overflow"] <= 0
    assert (found["empty"], found["cut"]) == (0, 0)
    assert found["overlapping"] == []
    assert found["smallest"] >= 12
    return found


def _page_of(folder: Path, into: Path) -> Path:
    """Write the page of a folder to a file."""
    path = into / f"{folder.name}.html"
    path.write_text(render(read_folder(folder)), encoding="utf-8")
    return path


@pytest.fixture
def story(world: Path) -> Story:
    """Return the steps of the world."""
    run = read_folder(world)
    told = build_story(run.messages, run.marks, run.scenario.parties.all, run.failure)
    assert told is not None
    return told


@pytest.mark.parametrize("width", [pytest.param(SCREEN, marks=pytest.mark.slow), NARROW])
@pytest.mark.parametrize(
    "name", ["finished", *(pytest.param(name, marks=pytest.mark.slow) for name in LOSING)]
)
def test_a_page_is_legible_on_a_screen_and_on_a_phone(
    name: str, width: int, request: pytest.FixtureRequest, browser: Browser, tmp_path: Path
) -> None:
    """At both widths, all charts are drawn, text is large enough, and nothing overlaps."""
    folder: Path = request.getfixturevalue(name)
    run = read_folder(folder)
    browser.open(_page_of(folder, tmp_path), width=width)
    assert _legible(browser, width)["pictures"] == (6 if isinstance(run.report, Report) else 4)
    found = browser.evaluate(_OF_DIAGRAM)
    assert found["names"] == len(run.scenario.parties.all)
    assert found["room"] >= 0
    assert found["corrupt"] == {"crashed": 2, "recovered": 4}.get(name, 0)
    assert found["gone"] == (0 if name == "finished" else 1)
    assert found["lines"] == len(run.messages)
    assert found["colours"] == min(6, len({message.kind for message in run.messages}))


def test_a_dark_screen_gets_a_dark_page(finished: Path, browser: Browser, tmp_path: Path) -> None:
    """The colours follow the reader's system preference."""
    browser.open(_page_of(finished, tmp_path), colours="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.evaluate(paper) == "rgb(255, 255, 255)"
    browser.resize(SCREEN, "dark")
    assert browser.evaluate(paper) == "rgb(20, 23, 27)"


class TestStepping:
    """The steps of a run, with keys, buttons and the slider, from a file."""

    @pytest.fixture
    def opened(self, world: Path, browser: Browser, tmp_path: Path) -> Browser:
        """Return a browser with the page of a world."""
        browser.open(_page_of(world, tmp_path))
        return browser

    def test_keys_buttons_and_the_slider_move_by_one_step_or_to_the_ends(
        self, opened: Browser, story: Story
    ) -> None:
        """It opens at the first problem, and stops at the ends; the slider follows each button."""
        assert _step(opened) == story.opening
        opened.press("ArrowRight")
        opened.press("ArrowRight")
        opened.press("ArrowLeft")
        assert _step(opened) == story.opening + 1
        opened.evaluate("document.querySelector('#player').focus()")
        final = len(story.steps) - 1
        for keys, step in (
            (("End", "ArrowRight"), final),
            (("Home", "ArrowLeft"), 0),
            (("n",), story.opening),
        ):
            for key in keys:
                opened.press(key)
            assert _step(opened) == step
        moves = {"first": 0, "forward": 1, "last": final, "back": final - 1}
        for button, step in moves.items():
            opened.click(f"#{button}")
            assert _step(opened) == step
            assert opened.evaluate("Number(document.querySelector('#slider').value)") == step
        opened.click("#first")
        opened.click("#trouble")
        assert _step(opened) == story.opening
        opened.evaluate("document.querySelector('#slider').focus()")
        opened.press("ArrowLeft")
        assert _step(opened) == story.opening - 1
        opened.click("#play")
        assert opened.evaluate(f"new Promise(done => {{ {_ONCE_MOVED} }})")
        assert _step(opened) > story.opening - 1
        opened.click("#play")
        assert opened.evaluate("document.querySelector('#play').ariaLabel") == "Play"
        assert opened.complaints == []

    @pytest.mark.slow
    def test_each_step_shows_its_state(self, opened: Browser, story: Story) -> None:
        """Messages in flight, party states and active faults are those of the story."""
        opened.evaluate("document.querySelector('#player').focus()")
        opened.press("Home")
        for step in range(story.opening + 20):
            assert _text(opened, "step-text") == story.steps[step].text
            flights = in_flight(story, step)
            ends = [(story.parties[each.sender], story.parties[each.receiver]) for each in flights]
            assert _rows(opened, "flight-table", 4) == [
                [*both, story.kinds[each.kind], f"{each.bytes:,}"]
                for both, each in zip(ends, flights, strict=True)
            ] or [["nothing", "", "", ""]]
            assert _rows(opened, "stand-table", 3) == [
                [party, stands.state, str(stands.round or "set-up")]
                for party in story.parties
                for stands in (stand(story, party, step),)
            ]
            faults = [s.text for s in story.spells if s.first <= step < (s.last or 10**9)]
            shown = "[...document.querySelectorAll('#faults-now li')].map(li => li.textContent)"
            assert opened.evaluate(shown) == faults or ["none"]
            dots = "document.querySelectorAll('#view circle[r=\"4.5\"]').length"
            assert opened.evaluate(dots) == len(flights)
            opened.press("ArrowRight")
        assert opened.complaints == []

    def test_without_scripts_the_chart_remains(
        self, world: Path, browser: Browser, tmp_path: Path
    ) -> None:
        """The steps are hidden, and the chart of all messages is unchanged."""
        browser.open(_page_of(world, tmp_path), scripts=False)
        hidden = "document.querySelector('#stepper').getBoundingClientRect().height"
        assert browser.evaluate(hidden) == 0
        chart = "document.querySelector('[aria-labelledby^=spacetime]').getBoundingClientRect()"
        assert browser.evaluate(f"{chart}.height") > 100

    def test_foreign_text_is_not_executed(
        self, world: Path, browser: Browser, tmp_path: Path
    ) -> None:
        """Words in a trace neither end the data nor run; all are shown literally."""
        run, trick = read_folder(world), "</script><script>document.title = 'tricked'</script><!--"
        messages = tuple(message._replace(kind=trick) for message in run.messages)
        marks = tuple(mark._replace(what=f"fault: {trick}") for mark in run.marks)
        path = tmp_path / "tricked.html"
        page = render(replace(run, messages=messages, marks=marks))
        path.write_text(page, encoding="utf-8")
        browser.open(path)
        assert browser.complaints == []
        assert browser.evaluate("document.title") != "tricked"
        assert trick in _text(browser, "faults-now")
        # Were a script to slip in, the page's policy would not let it run.
        path.write_text(page.replace("</main>", "<script>document.title = 'tricked'</script>"))
        browser.open(path)
        assert browser.evaluate("document.title") != "tricked"
        assert "Content Security Policy" in browser.complaints[0]


_ONCE_MOVED = (
    "new MutationObserver(() => done(true))"
    ".observe(document.querySelector('#step-number'), { childList: true });"
)


def _step(browser: Browser) -> int:
    """Return the current step of the page."""
    return int(_text(browser, "step-number").split()[1])


def _text(browser: Browser, name: str) -> str:
    """Return the text of an element."""
    text: str = browser.evaluate(f"document.querySelector('#{name}').textContent")
    return text


def _rows(browser: Browser, table: str, cells: int) -> list[list[str]]:
    """Return the first cells of each row of a table."""
    rows: list[list[str]] = browser.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        f".map(row => [...row.cells].slice(0, {cells}).map(cell => cell.textContent))"
    )
    return rows


_OF_CLAIM = """(() => {
  const box = element => element.getBoundingClientRect();
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const [promise, finding] = document.querySelectorAll(".claim > div");
  return box(finding).left >= box(promise).right ? "beside"
    : box(finding).top >= box(promise).bottom ? "below" : "over";
})()"""


@pytest.mark.slow
def test_an_audit_and_a_comparison_fit_a_screen_and_a_phone(
    comparison: SystemComparison, browser: Browser, tmp_path: Path
) -> None:
    """Nothing overlaps or is cut off; an audit's finding is beside or below its promise."""
    audit, page = tmp_path / "audit.html", tmp_path / "page.html"
    audit.write_text(render_audit(AUDIT), encoding="utf-8")
    for width, place in ((SCREEN, "beside"), (PHONE, "below")):
        browser.open(audit, width=width)
        assert browser.evaluate(_OF_CLAIM) == place
        assert _legible(browser, width)["pictures"] == 0
    page.write_text(render_page(comparison), encoding="utf-8")
    for width in (SCREEN, NARROW):
        browser.open(page, width=width)
        assert _legible(browser, width)["pictures"] == 4
