"""The number of people that a survey needs, compared with simulations."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats
from tests.deployment.questions import asked
from tests.privacy.generators import FALSE_ALARM, seeded

from veilring.deployment.surveys.plan import Need, people_needed, repeat_survey
from veilring.deployment.surveys.questionnaire import Questionnaire
from veilring.errors import InputError
from veilring.privacy.noise import discrete_laplace
from veilring.protocols.ldp.algorithm.oracles import recommend_oracle

BOUND, CONFIDENCE, RUNS = 0.03, 0.95, 4000
EPSILON = 1.0


def needs_of(form: Questionnaire, epsilon: float = EPSILON) -> dict[str, Need]:
    """Return the numbers of people by their trust."""
    return {each.trust: each for each in people_needed(form, epsilon, BOUND, CONFIDENCE)}


def covers(errors: Any, *, least: bool = False) -> bool:
    """Return whether as many errors as promised are within the bound.

    Args:
        least: Whether the errors are of one person less than needed: then too few are.
    """
    beyond = int((np.abs(errors) > BOUND + 1e-12).sum())
    side: Literal["less", "greater"] = "less" if least else "greater"
    return bool(stats.binomtest(beyond, len(errors), 1 - CONFIDENCE, side).pvalue > FALSE_ALARM)


@pytest.mark.parametrize(("trust", "draws"), [("one of two aggregators", 2), ("the collector", 1)])
def test_totals_of_enough_people_are_close(trust: str, draws: int) -> None:
    """With noise of 1 / epsilon, and with sampling, the error of a share keeps within the bound.

    One person less is too few for the noise alone.
    """
    need, rng = needs_of(asked())[trust], seeded("totals", draws)
    noise = discrete_laplace(1 / EPSILON, (RUNS, draws), rng).sum(axis=1)
    assert covers(noise / need.people)
    assert covers(noise / (need.people - 1), least=True)
    sampled = rng.binomial(need.sampled, 0.5, RUNS) + noise
    assert covers(sampled / need.sampled - 0.5)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_reports_of_enough_people_are_close(share: float) -> None:
    """With the noise of each person, the error keeps within the bound, whatever the share is."""
    need, rng = needs_of(asked())["nobody"], seeded("reports", int(10 * share))
    oracle: Any = recommend_oracle(3, EPSILON)
    p, q = float(oracle.p), float(oracle.q)
    for people, sampled in ((need.people, False), (need.sampled, True)):
        holders = rng.binomial(people, share, RUNS) if sampled else round(people * share)
        seen = rng.binomial(holders, p) + rng.binomial(people - holders, q, RUNS)
        assert covers((seen / people - q) / (p - q) - share)


def test_questions_share_a_budget() -> None:
    """Two questions need twice the noise in totals; of noisy reports, each is for one question."""
    question = {"name": "q", "text": "?", "kind": "single-choice", "answers": ["a", "b", "c"]}
    both = asked(questions=[question, {**question, "name": "r"}])
    one, two = needs_of(asked()), needs_of(both)
    assert two["nobody"].people == 2 * one["nobody"].people
    for trust in ("one of two aggregators", "the collector"):
        half = needs_of(asked(), EPSILON / 2)[trust]
        assert (two[trust].people, two[trust].sampled) == (half.people, half.sampled)


def test_less_trust_needs_more_people() -> None:
    """At each ε, noise by each person costs most, and noise by one owner least."""
    for epsilon in (0.5, 1.0, 4.0):
        nobody, two, one = needs_of(asked(), epsilon).values()
        assert nobody.people > two.people >= one.people
        assert nobody.sampled > two.sampled >= one.sampled
        assert all(each.sampled >= each.people for each in (nobody, two, one))


def test_repeated_surveys_add_up() -> None:
    """The sum is exact; a δ helps if there are many surveys, and never harms."""
    once = repeat_survey(1.0, 1, 1e-6)
    assert once.basic == 1.0
    assert once.optimal == pytest.approx(1.0, abs=1e-5)
    year, many = repeat_survey(0.1, 12, 1e-6), repeat_survey(0.1, 365, 1e-6)
    assert year.basic == pytest.approx(1.2)
    assert year.optimal <= year.basic
    assert many.optimal < many.basic / 3


@pytest.mark.parametrize(
    ("epsilon", "bound", "confidence", "said"),
    [(0.0, 0.1, 0.9, "epsilon"), (1.0, 0.0, 0.9, "points"), (1.0, 0.1, 1.0, "confidence")],
)
def test_impossible_plans_are_refused(
    epsilon: float, bound: float, confidence: float, said: str
) -> None:
    """An ε, a bound or a confidence out of range is named."""
    with pytest.raises(InputError, match=said):
        people_needed(asked(), epsilon, bound, confidence)


def test_the_guide_shows_the_numbers_of_a_plan() -> None:
    """The numbers of people on the guide's page are those of a question with four answers."""
    question = {"name": "q", "text": "?", "answers": ["a", "b", "c", "d"]}
    page = (Path(__file__).parents[2] / "docs/how-to/survey.md").read_text(encoding="utf-8")
    needs = needs_of(asked(questions=[question]))
    for trust, digits in (("nobody", -3), ("one of two aggregators", -2)):
        (row,) = (line for line in page.splitlines() if line.startswith(f'| `"{trust}"` | '))
        assert row.endswith(f"| about {round(needs[trust].sampled, digits):,} |")
