"""The page of a survey whose answers two aggregators add up: one file of HTML, without a build.

It contains the canonical bytes of the task, which it hashes as they are, and loads the client for
browsers that others maintain (`@divviup/dap`), of which the operator has a copy beside it.
"""

import hashlib
import shutil
from base64 import b64encode
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlsplit

from veilring.config import require_key_that
from veilring.deployment.config import VERIFIED_SUM, read_terms
from veilring.deployment.surveys.aggregators import VerifiedSumTerms
from veilring.deployment.surveys.questionnaire import Form, Question
from veilring.errors import InputError
from veilring.privacy.checks import require
from veilring.protocols.prio.release import promise_of
from veilring.protocols.prio.task import Task

PAGE: Final = "index.html"
"""The name of the page in its folder."""
CLIENT: Final = "dap.js"
"""The name of the client's copy beside the page."""
_BUNDLE: Final = "`dist/browser.js` of the package `@divviup/dap`"
_USED: Final = (b"divviup", b"dap", b"Task", b"generateReport", b"sendReport")
"""The names that the page uses of the client."""


class _Page(Template):
    """A page with places to fill, such as `%%title`."""

    delimiter = "%%"


def load_task(terms: Path) -> Task:
    """Return the task in a file of terms.

    Raises:
        ScenarioError: If the file cannot be read, or has no terms of two aggregators.
    """
    tables = read_terms(terms)
    said = "these are the questions; give the file terms.toml that `veilring deploy` makes of them"
    require_key_that("questions" not in tables, "questions", said)
    name = (tables.get("protocol") or {}).get("name", VERIFIED_SUM)
    said = f"a page needs two aggregators, and these terms are of {name}"
    require_key_that(name == VERIFIED_SUM, "protocol.name", said)
    return VerifiedSumTerms.of(**tables).checked().task


def write_page(task: Task, client: Path, folder: Path) -> None:
    """Write the page of a survey and a copy of the client into a new folder.

    Args:
        client: The bundle for browsers of the package `@divviup/dap`.

    Raises:
        InputError: If the task has no questions, the client cannot be read or is another file, or
            the folder exists.
    """
    try:
        code = client.read_bytes()
    except OSError as error:
        allowed = f"{_BUNDLE} ({error.strerror})"
        raise InputError("--client", client, allowed) from error
    is_script = not code.lstrip().startswith((b"{", b"[", b"<"))
    require(
        is_script and all(name in code for name in _USED),
        "--client",
        client,
        f"{_BUNDLE}, as it is",
    )
    page = render_page(task, code)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        allowed = f"a folder that can be created ({error.strerror})"
        raise InputError("--out", folder, allowed) from error
    shutil.copyfile(client, folder / CLIENT)
    (folder / PAGE).write_text(page, encoding="utf-8")


def render_page(task: Task, client: bytes) -> str:
    """Return the text of the page.

    Args:
        client: The code of the client, of which the page has the hash.
    """
    form = Form.of_terms(task.terms)
    if form is None:
        raise InputError.because(
            "the task has no questions; deploy it with `veilring deploy questionnaire`",
            field="terms",
        )
    parts = resources.files(__package__) / "templates"
    script = (parts / "survey.js").read_text("utf-8")
    placed = enumerate(zip(form.questions, form.firsts, strict=True))
    questions = [_fieldset(each, number, first, form.bins) for number, (each, first) in placed]
    return _Page((parts / "survey.html").read_text("utf-8")).substitute(
        script_hash=_hash(script.encode()),
        origins=escape(" ".join(map(_origin, (task.leader, task.helper)))),
        title=escape(form.title),
        about=f"<p>{escape(form.about)}</p>" if form.about else "",
        integrity=_hash(client),
        task=escape(task.encoded.decode()),
        questions="\n".join(questions),
        protection=escape(_protection(task)),
        promise=escape(promise_of(task).paragraph(VERIFIED_SUM).replace("`", "")),  # marks of code
        script=script,
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _hash(code: bytes) -> str:
    return f"sha384-{b64encode(hashlib.sha384(code).digest()).decode()}"


def _fieldset(question: Question, number: int, first: int, bins: int) -> str:
    """Return the fields of a question; the value of a choice is its place in a report.

    Args:
        first: The place of its first answer.
    """
    name, hint, mark = f"q{number}", "", ""
    if question.kind == "number":
        low, high = (f"{each:.15g}" for each in question.range)
        unit = f" {question.unit}" if question.unit else ""
        hint = f"A number from {low} to {high}{unit}."
        keys = "text" if low.startswith("-") else "decimal"  # phones' keys for numbers have no sign
        fields = (
            f'<label><input type="text" inputmode="{keys}" autocomplete="off" name="{name}"'
            f' required data-low="{low}" data-high="{high}" data-first="{first}"'
            f' data-bins="{bins}">'
            f"<span>{escape(question.unit) or 'your answer'}</span></label>"
        )
    else:
        is_several = question.kind == "multiple-choice"
        if is_several:
            limit = question.weight < len(question.answers)
            hint = f"Choose at most {question.weight}." if limit else "Choose all that apply."
            mark = f' data-most="{question.weight}"'
        kind = 'type="checkbox"' if is_several else 'type="radio" required'
        fields = "\n".join(
            f'<label><input {kind} name="{name}" value="{place}">'
            f"<span>{escape(answer)}</span></label>"
            for place, answer in enumerate(question.options(bins), first)
        )
    said = f' <span class="hint">{escape(hint)}</span>' if hint else ""
    return (
        f"<fieldset{mark}>\n<legend>{escape(question.text)}{said}</legend>\n{fields}\n</fieldset>"
    )


def _protection(task: Task) -> str:
    """Return the protection of an answer, in a paragraph for the people who answer."""
    leader, helper = (urlsplit(each).netloc for each in (task.leader, task.helper))
    noise = "They publish exact totals, which may reveal an answer to people who know all others."
    if task.epsilon is not None:
        noise = (
            "Each of them adds random noise to the totals before anybody sees them, which bounds"
            " what the totals reveal about any one person"
            f" (ε = {task.epsilon:g} for all your answers together)."
        )
    return (
        "Your device splits your answers into two parts, and each part alone is random. One part is"
        f" for {leader}, the other one is for {helper}. They add up the parts of all people, and"
        f" learn no person's answers. {noise} This holds if at least one of the two is honest: if"
        " both put their parts together against the rules, they can read your answers. Both see"
        " the network address of your device, and when you send. You also rely on the site from"
        " which you opened this page."
    )
