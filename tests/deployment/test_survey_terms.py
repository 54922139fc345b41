"""The terms of a collection: its questions, the reading of rows, and invalid terms."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilring.deployment.survey import SurveyTerms, read_published
from veilring.errors import InputError, ProtocolViolation, ScenarioError

TERMS = """
classes = ["no", "yes"]
features = [
    { name = "age", low = 0, high = 100 },
    { name = "colour", categories = ["red", "green", "blue"] },
]
[protocol]
kind = "discrete-bayes"
epsilon = 1.5
closes = 2027-01-31T00:00:00Z
"""
NUMERIC = TERMS.replace("discrete-bayes", "gaussian-bayes")
PLAIN = TERMS.replace('classes = ["no", "yes"]', "")
MEANS = PLAIN.replace("discrete-bayes", "means")
TWO = PLAIN.replace("discrete-bayes", "frequency")
FREQUENCY = TWO.replace('{ name = "age", low = 0, high = 100 },', "")
COLOURS = '"colour", categories = ["red", "green", "blue"]'
ROWS = "age,colour,note,label\n50,blue,x,yes\n200,red,y,no\n0,green,z,no\n"


def written(tmp_path: Path, text: str, name: str = "rows.csv") -> Path:
    """Write a file."""
    path = tmp_path / name
    path.write_text(text)
    return path


def terms_of(tmp_path: Path, text: str) -> SurveyTerms:
    """Write terms, and read them."""
    return SurveyTerms.load(written(tmp_path, text, "terms.toml"))


@pytest.mark.parametrize(
    ("text", "rows", "domains"),
    [
        (TERMS, [[50, 2], [100, 0], [0, 1]], [2, 6, 6]),
        (NUMERIC, [[50, 0, 0, 1], [100, 1, 0, 0], [0, 0, 1, 0]], [2]),
        (MEANS, [[50, 0, 0, 1], [100, 1, 0, 0], [0, 0, 1, 0]], []),
        (FREQUENCY, [[2], [0], [1]], [3]),
        (FREQUENCY.replace(COLOURS, '"age", high = 100'), [[4], [7], [0]], [8]),
    ],
    ids=["discrete-bayes", "gaussian-bayes", "means", "categories", "bins"],
)
def test_rows_are_read_as_the_survey_requires(
    tmp_path: Path, text: str, rows: list[list[float]], domains: list[int]
) -> None:
    """Ranges clip values, and categories become numbers or one-hot columns."""
    terms = terms_of(tmp_path, text)
    pool = terms.read_clients(written(tmp_path, ROWS))
    np.testing.assert_array_equal(pool.rows, rows)
    if terms.classes:
        assert pool.labels.tolist() == [1, 0, 0]
    survey = terms.task.survey
    assert [q.cells for q in survey.questions][: len(domains)] == domains
    valid = survey.validated(pool.rows, pool.labels)
    for number, question in enumerate(survey.questions):
        reports = question.perturb(survey.encode(*valid, number), np.random.default_rng(0))
        assert question.accept(reports).all()
    assert survey.exact_epsilon <= 1.5


def test_each_category_has_its_own_number_and_each_bin_its_range(tmp_path: Path) -> None:
    """No rounding moves a category to another bin, for any number of categories."""
    names = [f"c{n}" for n in range(97)]
    text = TERMS.replace('["red", "green", "blue"]', json.dumps(names))
    text = text.replace("epsilon = 1.5", "epsilon = 1.5\nbins = 8")
    terms = terms_of(tmp_path, text)
    cells = "".join(f"{n * 12.5},{name},no\n" for n, name in enumerate(names))
    pool = terms.read_clients(written(tmp_path, "age,colour,label\n" + cells))
    survey = terms.task.survey
    valid = survey.validated(pool.rows, pool.labels)
    np.testing.assert_array_equal(survey.encode(*valid, 2) // 2, np.arange(97))
    bins = survey.encode(*valid, 1) // 2
    assert bins[:10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('classes = ["no", "yes"]', "", r"classes: discrete-bayes needs two or more classes"),
        ('["no", "yes"]', '["no", "no"]', "classes is .*without repeated names"),
        ('"discrete-bayes"', '"means"', r"classes: means takes no classes"),
        ('"discrete-bayes"', '"oracle"', "protocol.kind is 'oracle'; allowed: frequency, means"),
        ("epsilon = 1.5", "", "protocol.epsilon: the key is missing; give a number above 0"),
        ("epsilon = 1.5", "epsilon = 0", "protocol.epsilon is 0; allowed: a number above 0"),
        (
            "epsilon = 1.5",
            "epsilon = 1.5\noracle = 'rot13'",
            "protocol.oracle is 'rot13'; .*auto, de",
        ),
        ("epsilon = 1.5", "epsilon = 1.5\nbins = 1", "protocol.bins is 1; allowed: a whole number"),
        ("epsilon = 1.5", "epsilon = 1.5\nminimum = 0", "protocol.minimum is 0; allowed"),
        ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00", "protocol.closes is .*with its zone"),
        ('["red", "green", "blue"]', '["red"]', r"features.colour.categories is .*two or more"),
        ("epsilon = 1.5", "epsilon = 1.5\nsalt = 1", r"protocol\.salt: there is no such"),
        ("high = 100", "high = -1", r"features\.age\.high is -1"),
        (TERMS, TWO, "frequencies has one column; there are 2"),
    ],
)
def test_invalid_terms_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    assert old in TERMS
    with pytest.raises(ScenarioError, match=message):
        terms_of(tmp_path, TERMS.replace(old, new, 1))


def test_invalid_rows_are_named(tmp_path: Path) -> None:
    """The error names the column and the row."""
    terms = terms_of(tmp_path, TERMS)
    with pytest.raises(InputError, match=r"'colour', line 2 is 'pink'; allowed: one of red"):
        terms.read_clients(written(tmp_path, "age,colour,label\n1,pink,no\n"))
    with pytest.raises(InputError, match=r"lacks the column 'age'"):
        terms.read_clients(written(tmp_path, "colour,label\nred,no\n"))


@pytest.mark.parametrize("text", [TERMS, NUMERIC, MEANS, FREQUENCY])
def test_a_published_task_is_rebuilt_from_its_terms(tmp_path: Path, text: str) -> None:
    """A client that reads a published task has the same survey, numbers and hash."""
    terms = terms_of(tmp_path, text)
    assert terms_of(tmp_path, terms.to_toml()).task.digest == terms.task.digest
    again = read_published(terms.task.encoded, "census")
    assert again == terms
    assert again.task.digest == terms.task.digest
    assert again.task.survey == terms.task.survey


def test_the_minimum_is_not_part_of_the_task(tmp_path: Path) -> None:
    """A collector may change the minimum without a new task; clients do not see it."""
    usual = terms_of(tmp_path, TERMS).task
    terms = terms_of(tmp_path, TERMS.replace("[protocol]", "[protocol]\nminimum = 7"))
    assert terms.protocol.minimum == 7
    assert terms.task.encoded == usual.encoded
    assert b"minimum" not in usual.encoded


@pytest.mark.parametrize(
    "change",
    [
        lambda task: task["numbers"]["questions"][0].update(own=1),
        lambda task: task["terms"]["survey"].update(epsilon=3.0),
        lambda task: task["terms"]["survey"].update(minimum=7),
        lambda task: task["numbers"].update(salt=1),
        lambda task: task.pop("terms"),
        lambda task: task["terms"]["survey"].update(oracle="rot13"),
    ],
    ids=["likelier", "other terms", "a minimum", "a number more", "no terms", "no such oracle"],
)
def test_numbers_that_differ_from_the_terms_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """A client refuses a task with any number that its own terms do not give."""
    encoded = terms_of(tmp_path, TERMS).task.encoded
    content = json.loads(encoded)
    change(content)
    changed = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert changed != encoded
    with pytest.raises(ProtocolViolation) as caught:
        read_published(changed, "census")
    assert caught.value.culprit == "census"


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"terms":1}']
)
def test_bytes_that_are_not_a_task_name_the_collector(body: bytes) -> None:
    """Any published bytes are either read or blamed on the collector."""
    with pytest.raises(ProtocolViolation, match="census"):
        read_published(body, "census")
