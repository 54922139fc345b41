"""Questions, the reports that follow from them, and the estimates of their answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy import stats
from tests.deployment.commands import call
from tests.deployment.questions import ENTRIES, NORM, ONE, QUESTIONS, asked
from tests.privacy.generators import FALSE_ALARM, seeded

from veilring.cli.surveys import show_estimates
from veilring.deployment.surveys.aggregators import BatchTotal, Totals, VerifiedSumTerms
from veilring.deployment.surveys.collector import estimate_from
from veilring.deployment.surveys.questionnaire import Form, Questionnaire
from veilring.deployment.surveys.terms import SurveyTerms
from veilring.errors import InputError, ScenarioError
from veilring.privacy.noise import discrete_laplace
from veilring.protocols.ldp.algorithm.survey import answer, tally_reports
from veilring.protocols.prio.release import half_width, noise_of
from veilring.protocols.prio.task import Task

ADDRESSES = {"leader": "https://leader.example/", "helper": "https://helper.example/"}


def loaded(folder: Path, text: str = QUESTIONS) -> Questionnaire:
    """Read a file of questions."""
    path = folder / "questions.toml"
    path.write_text(text)
    return Questionnaire.load(path)


def task_of(form: Questionnaire, **given: Any) -> Task:
    """Return the task of two aggregators with the questions."""
    return Task(**ADDRESSES | form.task | given)


def test_a_report_has_a_bit_for_each_answer(tmp_path: Path) -> None:
    """The noise is made for the answers of one person, and not for a report with all bits."""
    form = loaded(tmp_path)
    task = task_of(form)
    assert task.vdaf.kind == "sumvec"
    assert (task.vdaf.length, task.vdaf.bits, task.norm) == (ENTRIES, 1, NORM)
    assert [each.question for each in form.entries].count("distance") == 5
    noise = noise_of(task)
    assert noise is not None
    assert noise.spread == NORM  # at ε = 1
    assert Task.decode(task.encoded) == task
    again = Form.of_terms(task.terms)
    assert again is not None
    assert again.entries == form.entries


GIVEN: dict[str, Any] = {
    "travel": "By bike",
    "reasons": ["It is fast", "It is clean"],
    "student": "yes",
    "distance": 19,
}


def test_answers_make_a_measurement(tmp_path: Path) -> None:
    """Each answer is the bit of its entry; the only answer to one question is its place."""
    form = loaded(tmp_path)
    bits = form.measurement(GIVEN)
    assert isinstance(bits, list)
    chosen = [entry.answer for entry, bit in zip(form.entries, bits, strict=True) if bit]
    assert chosen == ["By bike", "It is fast", "It is clean", "yes", "10 to 20"]
    assert form.measurement(GIVEN | {"reasons": [], "distance": 50})[-1] == 1  # type: ignore[index]  # a vector
    assert asked().measurement({"colour": "blue"}) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"travel": "By boat"},
        {"travel": ["By bike"]},
        {"reasons": ["It is fast", "It is cheap", "It is clean"]},
        {"reasons": ["It is fast", "It is fast"]},
        {"reasons": "It is fast"},
        {"distance": 50.5},
        {"distance": "12,5"},
        {"distance": float("nan")},
        {"other": "yes"},
    ],
)
def test_answers_that_nobody_can_give_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """The error names the question, and does not repeat the answer."""
    with pytest.raises(InputError) as caught:
        loaded(tmp_path).measurement(GIVEN | wrong)
    (name,) = wrong
    assert caught.value.field == ("answers" if name == "other" else f"questions.{name}")
    assert "By boat" not in str(caught.value)


@pytest.mark.parametrize("kind", ["single-choice", "yes-no", "number"])
def test_the_only_question_needs_one_answer(kind: str) -> None:
    """A histogram proves that a report has exactly one answer."""
    keys: dict[str, dict[str, Any]] = {
        "single-choice": {"answers": ["a", "b"]},
        "number": {"low": 0.0, "high": 1.0},
    }
    question = {"name": "q", "text": "?", "kind": kind, **keys.get(kind, {})}
    task = task_of(asked(questions=[question]))
    assert (task.vdaf.kind, task.norm) == ("histogram", 1)


def test_an_only_question_with_several_answers_is_a_vector() -> None:
    """A multiple choice of at most one answer may have none, which no histogram has."""
    question: dict[str, Any] = {"name": "q", "text": "?", "kind": "multiple-choice", "most": 1}
    question["answers"] = ["a", "b"]
    task = task_of(asked(questions=[question]))
    assert (task.vdaf.kind, task.norm) == ("sumvec", 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["On foot", "By bike", "By car"]', '["On foot"]', "answers.* two or more texts"),
        ('"By bike", "By car"', '"By bike", "By bike"', "without repeated names"),
        ("most = 2", "most = 4", "most is 4; allowed: at most 3"),
        ("most = 2", "low = 2", "kind multiple-choice has the keys name, text, answers, most"),
        ('kind = "yes-no"', 'kind = "yes-no"\nanswers = ["a", "b"]', "yes-no has the keys"),
        ("high = 50", "high = -1", "high is -1.0; allowed: above low"),
        ("low = 0\n", "", "kind number has the keys"),
        ('name = "student"', 'name = "travel"', "questions.*without repeated names"),
        ("bins = 5", "bins = 1", "bins is 1"),
        ("bins = 5", "bins = 5\nsalt = 1", "salt: there is no such"),
        ("bins = 5", 'trust = "everybody"', "trust is 'everybody'"),
        ("bins = 5", "closes = 2030-01-01T00:00:00", "closes is .*with its zone"),
        ('title = "Travel to <work>"', "", "title: the key is missing"),
    ],
)
def test_wrong_questions_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    """The error names the key, and says what is allowed."""
    assert old in QUESTIONS
    with pytest.raises(ScenarioError, match=said):
        loaded(tmp_path, QUESTIONS.replace(old, new))


@pytest.mark.parametrize("change", [{"norm": 1}, {"norm": None}])
def test_noise_for_other_answers_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Aggregators refuse a task whose norm is not that of its questions."""
    task = task_of(loaded(tmp_path), **change)
    terms = VerifiedSumTerms.of(task=task.model_dump(exclude_none=True))
    with pytest.raises(ScenarioError, match=f"task.norm is .*; allowed: {NORM}"):
        terms.checked()


def test_reports_of_another_kind_are_refused(tmp_path: Path) -> None:
    """Aggregators refuse a task whose reports are not those of its questions."""
    task = task_of(loaded(tmp_path), vdaf=task_of(asked()).vdaf)
    terms = VerifiedSumTerms.of(task=task.model_dump(exclude_none=True))
    with pytest.raises(ScenarioError, match=r"task\.vdaf is .*length=13"):
        terms.checked()


def test_people_who_trust_nobody_answer_one_column_each(tmp_path: Path) -> None:
    """Of a multiple choice, each answer is a column; every estimated share is in its interval."""
    form = loaded(tmp_path, QUESTIONS + "\n")
    terms = SurveyTerms.of(**form.survey_tables).checked()
    names = [feature.name for feature in terms.features]
    reasons = (f"reasons={each}" for each in form.questions[1].answers)
    assert names == ["travel", *reasons, "student", "distance"]
    rows = "\n".join([",".join(names), *["By bike,yes,no,yes,no,31"] * 6000, ""])
    path = tmp_path / "rows.csv"
    path.write_text(rows)
    pool = terms.read_clients(path)
    survey = terms.task.survey
    tally = tally_reports(survey, answer(survey, pool.rows, pool.labels, seeded("s")).reports)
    found = estimate_from(terms, tally, confidence=1 - FALSE_ALARM / 100)
    truth = {"By bike", "30 to 40"}
    assert len(found.lines) == 3 + 3 * 2 + 2 + 5
    for line in found.lines:
        share = {"reasons=It is cheap": line.value == "no", "student": line.value == "no"}.get(
            line.of, line.value == "yes" or line.value in truth
        )
        assert line.low <= float(share) <= line.high, line


class TestEstimates:
    """Shares of people with each answer, from the totals of batches."""

    @staticmethod
    def totals(batches: int, *, epsilon: float | None = 1.0) -> Totals:
        """Return batches of 100 people, of whom 50, 30 and 20 have an answer."""
        task = task_of(asked(), epsilon=epsilon)
        each = [BatchTotal(number, 100, [50, 30, 20], 0) for number in range(batches)]
        return Totals(task, tuple(each), 0.95)

    def test_batches_are_added(self) -> None:
        """The noise of the batches adds up, so intervals shrink by less than the number."""
        one, four = (self.totals(number).estimates for number in (1, 4))
        assert [line.estimate for line in four] == [0.5, 0.3, 0.2]
        assert [(line.of, line.value) for line in one] == [
            ("colour", each) for each in ("red", "green", "blue")
        ]
        widths = [found[0].high - found[0].low for found in (one, four)]
        assert 0.25 < widths[1] / widths[0] < 0.6

    def test_without_noise_shares_are_exact(self) -> None:
        """Each interval is a point."""
        for line in self.totals(3, epsilon=None).estimates:
            assert line.low == line.estimate == line.high

    def test_nothing_is_estimated_from_nothing(self) -> None:
        """Without batches, or without questions, there are no shares."""
        assert self.totals(0).estimates == ()
        found = self.totals(1)
        plain = found.task.model_copy(update={"terms": {}})
        assert found._replace(task=plain).estimates == ()

    def test_an_interval_covers_as_it_says(self) -> None:
        """The half-width is the least one that the noise of all batches exceeds in 5 %."""
        noise, batches, runs = noise_of(self.totals(1).task), 3, 20_000
        assert noise is not None
        width = half_width(noise, 0.95, batches)
        drawn = discrete_laplace(noise.spread, (runs, 2 * batches), seeded("covers")).sum(axis=1)
        beyond, almost = (int((np.abs(drawn) > k).sum()) for k in (width, width - 1))
        assert stats.binomtest(beyond, runs, 0.05, "greater").pvalue > FALSE_ALARM
        assert stats.binomtest(almost, runs, 0.05, "less").pvalue > FALSE_ALARM


def test_estimates_are_written_as_a_table_and_a_chart(tmp_path: Path) -> None:
    """The CSV file has a line for each estimate, and equal charts are equal files."""
    terms = SurveyTerms.of(**asked(minimum=1).survey_tables).checked()
    rows = np.zeros((500, 1), dtype=np.int64)
    given = answer(terms.task.survey, rows, rows[:, 0], seeded("rows"))
    found = estimate_from(terms, tally_reports(terms.task.survey, given.reports))
    table, charts = tmp_path / "shares.csv", [tmp_path / f"{n}.svg" for n in range(2)]
    show_estimates(found, json=False, out=table, plot=charts[0])
    show_estimates(found, json=True, plot=charts[1])
    lines = table.read_text().splitlines()
    assert lines[0] == "column,value,estimate,low,high,reports,interval"
    assert [line.split(",")[1] for line in lines[1:]] == ["red", "green", "blue"]
    text = charts[0].read_text()
    assert text == charts[1].read_text()
    assert all(f">{each}<" in text for each in ("red", "green", "blue", "colour"))


def test_a_questionnaire_is_deployed_for_each_trust(tmp_path: Path) -> None:
    """Two aggregators get a task with the questions; a collector gets columns."""
    path = tmp_path / "questions.toml"
    for trust, role in (("one of two aggregators", "leader"), ("nobody", "collector")):
        path.write_text(f'trust = "{trust}"\n{QUESTIONS}')
        folder = tmp_path / role
        shown = call("deploy", "questionnaire", path, "--out", folder).stdout
        assert f"veilring serve {folder / role}.toml" in shown
    task = VerifiedSumTerms.load(tmp_path / "leader" / "terms.toml").task
    assert task.norm == NORM
    assert (tmp_path / "leader" / "task.json").read_bytes() == task.encoded
    terms = SurveyTerms.load(tmp_path / "collector" / "terms.toml")
    assert len(terms.task.survey.questions) == 6


def test_a_plan_is_shown_as_json(tmp_path: Path) -> None:
    """It has all three kinds of trust for each ε."""
    path = tmp_path / "one.toml"
    path.write_text(tomli_w.dumps(ONE))
    document = json.loads(call("survey", "plan", path, "--epsilon", 1, "--json").stdout)
    assert [each["trust"] for each in document["needs"]] == [
        *("nobody", "one of two aggregators", "the collector")
    ]
    assert document["repeated"][0]["basic"] == 12.0


def test_errors_name_a_question_by_its_name(tmp_path: Path) -> None:
    """A question without a name has its number."""
    text = QUESTIONS.replace('"multiple-choice"', '"several"') + "[[questions]]\ntext = '?'\n"
    with pytest.raises(ScenarioError) as caught:
        loaded(tmp_path, text)
    error = caught.value
    assert [error.field, *(each.field for each in error.others)] == [
        *("questions.reasons.kind", "questions.4.name")
    ]


def test_a_survey_without_an_end_is_warned_of(tmp_path: Path) -> None:
    """A survey that has ended is refused; with noise of people's own, nobody stays uncounted."""
    assert "the last people, fewer than 60, are never counted" in asked(minimum=60).warn(0.0)
    assert not asked(trust="nobody").warn(0.0)
    form = loaded(tmp_path, f"closes = 2030-01-31T00:00:00Z\n{QUESTIONS}")
    assert form.closes is not None
    end = form.closes.timestamp()
    assert not form.warn(end - 1)
    with pytest.raises(ScenarioError, match=r"closes is .*; allowed: a time in the future"):
        form.warn(end)
    (tmp_path / "past.toml").write_text(f"closes = 2020-01-31T00:00:00Z\n{QUESTIONS}")
    for words in (("survey", "plan"), ("deploy", "questionnaire", "--out", tmp_path / "none")):
        assert "a time in the future" in call(*words, tmp_path / "past.toml", code=2).stderr
    assert not (tmp_path / "none").exists()


def test_a_page_is_made_of_the_terms_of_two_aggregators(tmp_path: Path) -> None:
    """Questions, and the terms of a collection, are refused with what to give instead."""
    path, folder = tmp_path / "questions.toml", tmp_path / "survey"
    path.write_text(tomli_w.dumps(ONE | {"trust": "nobody"}))
    call("deploy", "questionnaire", path, "--out", folder)
    page = ("survey", "page", "--client", path, "--out", tmp_path / "site")
    assert "give the file terms.toml" in call(*page, path, code=2).stderr
    shown = call(*page, folder / "terms.toml", code=2).stderr
    assert "a page needs two aggregators, and these terms are of ldp-bayes" in shown
