"""The page in a real browser, on a screen and on a phone."""

from pathlib import Path

import pytest
from tests.browser import SCREEN, Browser, needs_browser

from veilring.scenarios.comparison import SystemComparison
from veilring.scenarios.comparison.page import render_page

NARROW = 360  # the narrowest phone

_MEASURE = """(() => {
  const box = element => element.getBoundingClientRect();
  const texts = [...document.querySelectorAll("svg text")].filter(text => box(text).width);
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
  return {
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    cut: box(document.querySelector("#lines-table")).right - innerWidth,
    pictures: [...document.querySelectorAll("svg[role=img]")]
      .filter(picture => box(picture).width > 300).length,
    smallest: Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    overlapping: texts.flatMap((one, place) => texts.slice(place + 1)
      .filter(other => one.ownerSVGElement === other.ownerSVGElement)
      .filter(other => !apart(box(one), box(other)))
      .map(other => one.textContent + " | " + other.textContent)),
    outside: [...document.querySelectorAll(".point")].filter(p => box(p).right > innerWidth).length,
  };
})()"""


@pytest.mark.slow
@needs_browser
def test_a_page_is_legible_on_a_screen_and_on_a_phone(
    comparison: SystemComparison, browser: Browser, tmp_path: Path
) -> None:
    """Nothing is cut off or overlaps, text is large enough, and all pictures are drawn."""
    page = tmp_path / "page.html"
    page.write_text(render_page(comparison), encoding="utf-8")
    for width in (SCREEN, NARROW):
        browser.open(page, width=width)
        found = browser.evaluate(_MEASURE)
        assert browser.complaints == []
        assert found["width"] == width
        assert found["overflow"] <= 0
        assert found["cut"] <= 0
        assert found["pictures"] == 4
        assert found["smallest"] >= 12
        assert found["overlapping"] == []
        assert found["outside"] == 0
