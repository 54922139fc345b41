"""The report on a collection: its names, its units and its JSON form."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilring.cli.surveys import show_estimates
from veilring.deployment.collector import Estimates, estimate_from
from veilring.deployment.survey import SurveyTerms
from veilring.protocols.ldp.algorithm.survey import Tally, answer, tally_reports

CLIENTS = 40_000
TERMS = """
features = [{ name = "age", low = 0, high = 100 }]
[protocol]
kind = "means"
epsilon = 20
minimum = 1
"""
GAUSSIAN = "classes = ['no', 'yes']" + TERMS.replace("means", "gaussian-bayes")


def terms_of(tmp_path: Path, text: str) -> SurveyTerms:
    """Read the terms."""
    path = tmp_path / "terms.toml"
    path.write_text(text)
    return SurveyTerms.load(path)


def estimated(terms: SurveyTerms, question: int | None = None) -> Estimates:
    """Estimate from people aged 75, a quarter of whom answer yes, all to one question."""
    rng = np.random.default_rng(3)
    rows, labels = np.full((CLIENTS, 1), 75.0), np.repeat([0, 0, 0, 1], CLIENTS // 4)
    survey = terms.task.survey
    reports = list(answer(survey, rows, labels, rng).reports)
    if question is not None:
        reports = [each if n == question else each[:0] for n, each in enumerate(reports)]
    return estimate_from(terms, tally_reports(survey, reports), confidence=1 - 1e-9)


def test_a_mean_is_in_the_unit_of_its_column(tmp_path: Path) -> None:
    """Its interval contains the mean age, under the heading of a mean."""
    (line,) = estimated(terms_of(tmp_path, TERMS)).lines
    assert (line.of, line.value, line.within, line.clients) == ("age", "mean", "", CLIENTS)
    assert line.low < 75 < line.high


def test_a_mean_within_a_class_is_named_correctly(tmp_path: Path) -> None:
    """A mean of 1/2 on the reporting scale, in a quarter of the clients, is reported as 1/8."""
    lines = {
        (line.value, line.within): line for line in estimated(terms_of(tmp_path, GAUSSIAN)).lines
    }
    assert len(lines) == 6
    for (value, within), line in lines.items():
        share = 0.25 if "yes" in (value, within) else 0.75
        power = {"mean * share": 1, "mean square * share": 2}.get(value, 0)
        # Among 13,000 that drew a question, a share is off by 0.05 once in 1e20 (Hoeffding).
        assert line.low - 0.05 < share * 0.5**power < line.high + 0.05
        assert (line.of == "age") == (power > 0)


def test_json_contains_no_infinity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The interval ends of a question without answers are null."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    terms = terms_of(tmp_path, GAUSSIAN)
    show_estimates(estimated(terms, question=0), json=True)
    document = json.loads(capsys.readouterr().out, parse_constant=refuse)
    ends = {line["value"]: (line["low"], line["high"]) for line in document["estimates"]}
    assert ends["mean * share"] == ends["mean square * share"] == (None, None)
    assert None not in ends["yes"]
    show_estimates(estimated(terms, question=0), json=False)
    assert "-inf to inf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("members", "shown"),
    [(20, ", p18 19, p19 20"), (21, "21 members, 231 in total, at most 21 by one (p20)")],
)
def test_many_members_are_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], members: int, shown: str
) -> None:
    """Up to 20 members are listed; more are shown by their number, their total and the most."""
    found = estimated(terms_of(tmp_path, TERMS))
    stored = {f"p{number}": number + 1 for number in range(members)}
    show_estimates(replace(found, members=stored), json=False)
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "by member" in each)
    assert line.endswith(shown)


def test_estimates_need_enough_reports(tmp_path: Path) -> None:
    """An empty tally is refused for any minimum."""
    terms = terms_of(tmp_path, TERMS)
    with pytest.raises(ValueError, match="0 of at least 1 reports so far"):
        estimate_from(terms, Tally.empty(terms.task.survey))


def test_intervals_of_too_few_reports_are_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line warns if the rarest answer is expected in few reports, and is absent otherwise."""
    terms = terms_of(tmp_path, GAUSSIAN.replace("20", "1"))
    many = estimated(terms)
    assert not any(line.rough for line in many.lines)
    rng, survey = np.random.default_rng(4), terms.task.survey
    reports = answer(survey, np.full((30, 1), 75.0), np.arange(30) % 2, rng).reports
    few = estimate_from(terms, tally_reports(survey, reports))
    assert all(line.rough for line in few.lines)
    show_estimates(many, json=False)
    assert "~" not in capsys.readouterr().out
    show_estimates(few, json=False)
    assert "~ 6 intervals are based on too few reports" in capsys.readouterr().out
    show_estimates(few, json=True)
    assert all(line["rough"] for line in json.loads(capsys.readouterr().out)["estimates"])
