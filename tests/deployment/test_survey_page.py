"""The page of a survey in a real browser, with the maintained client and both aggregators."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest
import tomli_w
from benchmarks.ports import reserve_ports
from tests.browser import PHONE, Browser, needs_browser
from tests.deployment.commands import Deployment, call, wait_until
from tests.deployment.pages import BUNDLE, web_site
from tests.deployment.prio_crashes import AGGREGATORS
from tests.deployment.questions import ONE, QUESTIONS, asked
from tests.deployment.uploading import Serving, serving
from tests.npm import needs_npm
from tests.protocols.prio.reports import PRECISION, make_task

from veilring.deployment.surveys.page import CLIENT, PAGE, render_page, write_page
from veilring.deployment.surveys.questionnaire import Form, Questionnaire
from veilring.errors import InputError, StoreFailed
from veilring.protocols import intake
from veilring.protocols.prio.sealing import Problem, ReportRefused
from veilring.protocols.prio.store import Added, Upload
from veilring.protocols.prio.uploads import Door

IDLE: Final = (
    b"globalThis.divviup = { dap: { Task: class { generateReport() {} sendReport() {} } } };"
)
"""A client that sends nothing."""
NARROW: Final = 320
CONTRAST_MIN: Final = 4.5
PRICE: Final = 40.0
"""The ε at which noise moves a total once in e**40 times."""
TOLD: Final = "document.querySelector('#status').textContent"
_ACCESSIBLE: Final = """(() => {
  const linear = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = element => {
    const [a, b] = [getComputedStyle(element).color, paper(element)].map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const shown = [...document.querySelectorAll("body *:not(script)")]
    .filter(e => e.getClientRects().length);
  const texts = shown.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const fields = [...document.querySelectorAll("input")];
  return {
    overflow: document.documentElement.scrollWidth - innerWidth,
    contrast: Math.min(...texts.map(contrast)),
    smallest: Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))),
    texts: texts.length,
    unnamed: fields.filter(e => e.labels.length !== 1 || !e.labels[0].innerText.trim()).length,
    fields: fields.length,
    legends: [...document.querySelectorAll("fieldset > legend:first-child")]
      .map(e => e.innerText.trim()),
    low: fields.filter(e => e.closest("label").getBoundingClientRect().height < 44).length,
    lang: document.documentElement.lang,
    headings: [...document.querySelectorAll("h1, h2")].map(e => e.tagName).join(" "),
  };
})()"""


@pytest.fixture
def form(tmp_path: Path) -> Form:
    """Return questions of every kind."""
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS)
    return Questionnaire.load(path)


Visit = Callable[..., AbstractAsyncContextManager[Serving]]


@pytest.fixture
def visit(packages: Path, certificate: tuple[Path, Path], trusting: Browser) -> Visit:
    """Return a context in which both aggregators serve, and their page is open on a phone."""

    @asynccontextmanager
    async def opened(
        form: Form,
        *,
        now: Callable[[], float] = time.time,
        add: Callable[[Sequence[Upload]], Sequence[Added]] | None = None,
        **task: Any,
    ) -> AsyncIterator[Serving]:
        given = {"norm": form.norm, "terms": form.task["terms"], **task}
        async with serving(form.vdaf, certificate=certificate, now=now, add=add, **given) as site:
            client = (packages / BUNDLE).read_bytes()
            page = render_page(site.parties.task, client).encode()
            async with web_site({PAGE: page, CLIENT: client}, certificate) as url:
                await asyncio.to_thread(trusting.open, f"{url}{PAGE}", width=PHONE)
                yield site

    return opened


@pytest.fixture
async def shown(
    form: Form, certificate: tuple[Path, Path], trusting: Browser
) -> AsyncIterator[Browser]:
    """Return a browser with a page whose client sends nothing."""
    client = IDLE
    task = make_task(form.vdaf, norm=form.norm, terms=form.task["terms"])
    files = {PAGE: render_page(task, client).encode(), CLIENT: client}
    async with web_site(files, certificate) as url:
        await asyncio.to_thread(trusting.open, f"{url}{PAGE}")
        yield trusting


def answer(browser: Browser, *places: int, number: str = "") -> None:
    """Click the answers at some places of a report, and type a number."""
    for place in places:
        browser.click(f"input[value='{place}']")
    if number:
        browser.click("input[data-bins]")
        write(browser, number)


def write(browser: Browser, text: str) -> None:
    """Type a text."""
    for key in text:
        browser.press(key)


def send(browser: Browser) -> str:
    """Press the button, and return the message of the page after it."""
    browser.click("form button")
    return told(browser)


def told(browser: Browser) -> str:
    """Wait until the page has an answer, and return it."""
    waits = "['', 'Your answers are being sent.'].includes"
    script = (
        f"new Promise(done => {{ const look = () => {waits}({TOLD}) ? setTimeout(look, 10)"
        f" : done({TOLD}); look(); }})"
    )
    return str(browser.evaluate(script))


@needs_browser
@needs_npm
async def test_answers_are_added_exactly(form: Form, visit: Visit, trusting: Browser) -> None:
    """People answer with a pointer or with keys alone, one after another on one device.

    The totals of what the aggregators verify are exact.
    """

    def with_keys() -> None:
        keys = [" ", "Tab", " ", "Tab", "Tab", " ", "Tab", " ", "ArrowRight", "Tab"]
        for key in keys:
            trusting.press(key)
        write(trusting, "50")
        for key in ("Tab", "Tab", " "):
            trusting.press(key)

    def people() -> list[str]:
        answer(trusting, 1, 3, 5, 6, number="19")
        said = [send(trusting)]
        trusting.click("#another")
        with_keys()
        return [*said, told(trusting)]

    async with visit(form) as site:
        said = await asyncio.to_thread(people)
        assert said == ["Thank you. Your answers have arrived."] * 2
        assert trusting.complaints == []
        totals, refused = site.parties.totals()
    assert refused == 0
    assert totals == [1, 1, 0, 2, 0, 2, 1, 1, 0, 1, 0, 0, 1]


@needs_browser
@needs_npm
async def test_the_only_question_is_a_histogram(visit: Visit, trusting: Browser) -> None:
    """A page with one choice reports its place."""
    async with visit(asked()) as site:
        await asyncio.to_thread(answer, trusting, 2)
        assert (await asyncio.to_thread(send, trusting)).startswith("Thank you")
        assert site.parties.totals() == ([0, 0, 1], 0)


@needs_browser
@needs_npm
async def test_an_answer_that_was_lost_counts_once(
    visit: Visit, trusting: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upload without confirmation, the answers are fixed and the same report is sent."""
    monkeypatch.setattr(intake, "STORE_PAUSE_SECONDS", 0.0)
    failures = [StoreFailed("stored, but not confirmed")]
    site: Serving

    def add(group: Sequence[Upload]) -> Sequence[Added]:
        added = site.parties.store.add(group)
        if failures:
            raise failures.pop()
        return added

    async with visit(asked(), add=add) as site:
        await asyncio.to_thread(answer, trusting, 0)
        said = await asyncio.to_thread(send, trusting)
        assert said.startswith("The survey could not take your answers now. Send again")
        assert trusting.evaluate("document.querySelector('fieldset').disabled")
        await asyncio.to_thread(
            trusting.evaluate, "document.querySelector('#status').textContent=''"
        )
        assert (await asyncio.to_thread(send, trusting)).startswith("Thank you")
        assert site.parties.totals() == ([1, 0, 0], 0)


@needs_browser
@needs_npm
@pytest.mark.parametrize(
    "lie",
    [
        "invalidMessage",
        *(
            pytest.param(lie, marks=pytest.mark.slow)
            for lie in ("outdatedConfig", "reportTooEarly")
        ),
    ],
)
async def test_no_refusal_gets_a_second_report(
    visit: Visit, trusting: Browser, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """After a refusal and a reload, the page sends the same bytes, also to a leader that lies."""
    sent, take = list[bytes](), Door.open

    def refuse(door: Door, report: bytes, now: float) -> Upload:
        sent.append(report)
        if len(sent) == 1:
            raise ReportRefused(Problem(lie), "not now")
        return take(door, report, now)

    monkeypatch.setattr(Door, "open", refuse)
    async with visit(asked()) as site:
        await asyncio.to_thread(answer, trusting, 0)
        assert not (await asyncio.to_thread(send, trusting)).startswith("Thank you.")
        url = await asyncio.to_thread(trusting.evaluate, "location.href")
        await asyncio.to_thread(trusting.open, url, width=PHONE)
        assert "Send them again" in await asyncio.to_thread(told, trusting)
        assert trusting.evaluate("document.querySelector('fieldset').disabled")
        await asyncio.to_thread(
            trusting.evaluate, "document.querySelector('#status').textContent=''"
        )
        assert (await asyncio.to_thread(send, trusting)).startswith("Thank you.")
        assert site.parties.totals() == ([1, 0, 0], 0)
    assert len(sent) == 2
    assert len(set(sent)) == 1


@needs_browser
@needs_npm
async def test_a_device_without_a_connection_may_send_later(
    visit: Visit, trusting: Browser
) -> None:
    """Offline, the page shows a sentence; the answers count once the device is online."""
    async with visit(asked()) as site:
        await asyncio.to_thread(trusting.disconnect, is_offline=True)
        try:
            await asyncio.to_thread(answer, trusting, 0)
            said = await asyncio.to_thread(send, trusting)
        finally:
            await asyncio.to_thread(trusting.disconnect, is_offline=False)
        assert "could not reach the survey" in said
        await asyncio.to_thread(
            trusting.evaluate, "document.querySelector('#status').textContent=''"
        )
        assert (await asyncio.to_thread(send, trusting)).startswith("Thank you")
        assert site.parties.totals() == ([1, 0, 0], 0)


@needs_browser
@needs_npm
@pytest.mark.parametrize(
    ("hours", "said"),
    [((-9, 0), "clock of this device is ahead"), ((9, 5), "The survey has closed")],
)
async def test_a_refusal_is_said_in_a_sentence(
    visit: Visit, trusting: Browser, hours: tuple[int, int], said: str
) -> None:
    """A device whose clock is ahead, or a survey that has closed, is explained.

    The hours are those by which the leader's clock is ahead, and after which the survey closes.
    """
    start, (ahead, closes) = time.time(), hours
    until: dict[str, Any] = {"closes": int(start) + closes * PRECISION} if closes else {}
    async with visit(asked(), now=lambda: start + ahead * PRECISION, **until) as site:
        await asyncio.to_thread(answer, trusting, 0)
        assert said in await asyncio.to_thread(send, trusting)
        assert site.parties.stored() == []


@needs_browser
@needs_npm
async def test_a_closed_survey_takes_no_answers(visit: Visit, trusting: Browser) -> None:
    """After its end the page shows no questions; after an answer it shows who may answer."""
    async with visit(asked(), closes=int(time.time())):
        assert await asyncio.to_thread(told, trusting) == "This survey has closed."
        assert trusting.evaluate("document.querySelector('form').hidden")


@needs_browser
@needs_npm
@pytest.mark.slow
async def test_a_deployed_survey_ends_with_a_table(
    packages: Path, certificate: tuple[Path, Path], trusting: Browser, tmp_path: Path
) -> None:
    """From a file of questions to a table and a chart, with the commands that the guide shows."""
    (tmp_path / "questions.toml").write_text(tomli_w.dumps(ONE | {"minimum": 2, "epsilon": PRICE}))
    folder, port = tmp_path / "survey", reserve_ports(4)
    call("deploy", "questionnaire", tmp_path / "questions.toml", "--port", port, "--out", folder)
    terms, client = folder / "terms.toml", packages / BUNDLE
    call("survey", "page", terms, "--client", client, "--out", folder / "site")
    files = {each.name: each.read_bytes() for each in (folder / "site").iterdir()}
    deployed = Deployment(folder)

    def is_early() -> bool:
        return "fewer than 2 reports" in deployed.call("estimate", "collector.toml").stdout

    def shares(*, code: int = 0) -> list[str]:
        table = folder / "shares.csv"
        deployed.call("estimate", "collector.toml", "--out", table, code=code)
        return table.read_text().splitlines()[1:] if table.exists() else []

    try:
        await asyncio.to_thread(deployed.serve, *AGGREGATORS)
        assert await asyncio.to_thread(partial(shares, code=2)) == []
        async with web_site(files, certificate) as url:
            for place in (1, 2):
                await asyncio.to_thread(trusting.open, f"{url}{PAGE}", width=PHONE)
                if place > 1:
                    await asyncio.to_thread(trusting.click, "#another")
                await asyncio.to_thread(answer, trusting, place)
                assert (await asyncio.to_thread(send, trusting)).startswith("Thank you")
        await asyncio.to_thread(wait_until, lambda: not is_early())
        found = [line.split(",")[1:3] for line in await asyncio.to_thread(shares)]
        assert found == [["red", "0.0"], ["green", "0.5"], ["blue", "0.5"]]
        words = ("estimate", "collector.toml", "--plot", folder / "shares.svg")
        shown = (await asyncio.to_thread(deployed.call, *words)).stdout
        assert "One: 2 people, epsilon 40" in shown
        assert "the last ones, below 2, never count: the terms have no `closes`" in shown
        assert "0.5000 to 0.5000" in shown
        assert ">Which?<" in (folder / "shares.svg").read_text()
        deployed.end_in_order()
    finally:
        deployed.kill()


@needs_browser
async def test_the_page_is_accessible(shown: Browser) -> None:
    """On phones, texts have contrast, fields have labels, and nothing is cut off.

    The keys visit the questions in their order.
    """
    shown.evaluate("document.querySelector('details').open = true")
    for width in (PHONE, NARROW):
        shown.resize(width)
        found = shown.evaluate(_ACCESSIBLE)
        assert shown.complaints == []
        assert found["overflow"] <= 0, width
        assert found["contrast"] >= CONTRAST_MIN
        assert found["smallest"] >= 12
        assert (found["fields"], found["unnamed"], found["low"]) == (9, 0, 0)
        assert found["headings"] == "H1 H2"
        assert found["lang"] == "en"
        assert [each.splitlines()[0][:3] for each in found["legends"]] == [
            *("How", "Why", "Are", "How")
        ]
        assert found["texts"] > 20
    order = []
    for _ in range(8):
        shown.press("Tab")
        order.append(
            shown.evaluate("document.activeElement.name || document.activeElement.tagName")
        )
    assert order == ["q0", "q1", "q1", "q1", "q2", "q3", "SUMMARY", "BUTTON"]


@needs_browser
async def test_too_many_answers_are_not_sent(shown: Browser) -> None:
    """The browser points at a question without an answer, or with too many."""
    is_valid = "document.querySelector('form').checkValidity()"
    assert not shown.evaluate(is_valid)
    answer(shown, 1, 3, 4, 6, number="7")
    assert shown.evaluate(is_valid)
    shown.click("input[value='5']")
    message = shown.evaluate("document.querySelector('input[value=\"3\"]').validationMessage")
    assert message == "Choose at most 2 answers."
    shown.click("form button")
    assert shown.evaluate(TOLD) == ""
    shown.click("input[value='3']")
    assert shown.evaluate(is_valid)


@needs_browser
async def test_the_page_measures_as_the_form_does(form: Form, shown: Browser) -> None:
    """The bits of a page are those that `Form.measurement` makes of the same answers."""
    answer(shown, 2, 3, 5, 7, number="19")
    given = {"travel": "By car", "reasons": ["It is fast", "It is clean"], "student": "no"}
    for number in ("0", "9.99", "10", "29,9", "49.9999", "50"):
        shown.evaluate(f"document.querySelector('input[data-bins]').value = '{number}'")
        value = float(number.replace(",", "."))
        assert shown.evaluate("measure()") == form.measurement(given | {"distance": value}), number


@needs_browser
async def test_a_decimal_comma_is_read_or_refused(shown: Browser) -> None:
    """A comma is a point; three digits after either could be thousands, and are refused."""
    shown.click("input[data-bins]")
    message = "document.querySelector('input[data-bins]').validationMessage"
    write(shown, "12,5")
    assert shown.evaluate(message) == ""
    assert shown.evaluate("read(document.querySelector('input[data-bins]')).value") == 12.5
    write(shown, "00")
    assert shown.evaluate(message) == "Write 12500, or 12.5000: 12,500 can be either."
    for text, said in (("1,2,5", "such as 12"), ("51", "from 0 to 50"), ("ten", "such as 12")):
        shown.evaluate("document.querySelector('input[data-bins]').value = ''")
        write(shown, text)
        assert said in shown.evaluate(message)


def test_the_page_has_the_task_and_its_promise(form: Form) -> None:
    """It contains the canonical task, runs only its own script and the client, and names the ε."""
    task = make_task(form.vdaf, norm=form.norm, epsilon=0.75, terms=form.task["terms"])
    text = render_page(task, b"client")
    (encoded,) = re.findall('data-task="([^"]*)"', text)
    assert unescape(encoded).encode() == task.encoded
    assert "Travel to &lt;work&gt;" in text
    assert "Travel to <work>" not in text
    assert "ε = 0.75 for all your answers together" in text
    assert "connect-src https://leader.example https://helper.example" in text
    assert "%%" not in text
    assert "`" not in text.partition("<script>")[0]
    exact = render_page(task.model_copy(update={"epsilon": None}), b"client")
    assert "exact totals" in exact


def test_a_page_needs_questions_and_a_client(form: Form, tmp_path: Path) -> None:
    """Without either, or into an existing folder, nothing is written."""
    code = tmp_path / "client.js"
    code.write_bytes(IDLE)
    with pytest.raises(InputError, match="has no questions"):
        write_page(make_task(), code, tmp_path / "site")
    task = make_task(form.vdaf, norm=form.norm, terms=form.task["terms"])
    with pytest.raises(InputError, match=r"dist/browser\.js"):
        write_page(task, tmp_path / "none.js", tmp_path / "site")
    for wrong in ('{"generateReport sendReport": "divviup.dap.Task"}', "export class Task {}", ""):
        other = tmp_path / "other.js"
        other.write_text(wrong)
        with pytest.raises(InputError, match="--client"):
            write_page(task, other, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    write_page(task, code, tmp_path / "site")
    assert sorted(each.name for each in (tmp_path / "site").iterdir()) == [CLIENT, PAGE]
    with pytest.raises(InputError, match="--out"):
        write_page(task, code, tmp_path / "site")
