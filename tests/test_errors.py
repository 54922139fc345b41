"""Input errors: their sentences, and no description in place of a value."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import veilring
import veilring as vr
from veilring.config import as_scenario_errors
from veilring.errors import SENTENCE_CHARACTERS_MAX, ScenarioError

SOURCE = Path(veilring.__file__).parent
# The position of the value among the arguments of what raises an error of input.
VALUE_AT = {"InputError": 1, "ScenarioError": 1, "require": 2, "require_key": 2}


def test_a_text_is_quoted_and_a_number_is_not() -> None:
    """An empty text, or a text with a comma, would otherwise be invisible."""
    assert str(vr.InputError("k", 0, "at least 1")) == "k is 0; allowed: at least 1"
    assert str(vr.InputError("mode", "", "a, b")) == "mode is ''; allowed: a, b"


def test_the_middle_of_a_long_sentence_is_left_out() -> None:
    """A value in a sentence hides neither its beginning nor the advice at its end."""
    text = str(vr.InputError.because(f"the key {'x' * 10_000} is unknown; remove it", field="key"))
    assert len(text) < SENTENCE_CHARACTERS_MAX + 100
    assert text.startswith("the key xxx")
    assert text.endswith("xxx is unknown; remove it")
    assert "(10,030 characters)" in text


def test_a_long_value_is_cut() -> None:
    """A key of ten thousand characters does not hide the allowed ones."""
    text = str(vr.InputError("mode", "x" * 10_000, "a, b"))
    assert text == f"mode is '{'x' * 200}'… (10,000 characters); allowed: a, b"
    assert len(str(vr.InputError("k", 10**300, "at least 1"))) < 300


def test_a_sentence_names_the_argument_or_the_key_of_a_file() -> None:
    """The argument of a function becomes the key of the file that contains it."""
    message = "the graph is not connected"
    assert str(vr.InputError.because(message, field="graph")) == message
    with pytest.raises(ScenarioError) as caught, as_scenario_errors({}, "network"):
        raise vr.InputError.because(message, field="graph")
    assert caught.value.field == "network.graph"
    assert str(caught.value) == f"network.graph: {message}"


def test_a_system_reports_all_invalid_parameters() -> None:
    """There is one sentence per line; a file that names the system reports its keys."""
    wrong: dict[str, Any] = {"k": 0, "sum": "star", "kk": 1}
    known = ", ".join(vr.PrivateKNN.model_fields)
    with pytest.raises(vr.InputError) as caught:
        vr.PrivateKNN(**wrong)
    assert str(caught.value).splitlines() == [
        "k is 0; allowed: a whole number of at least 1",
        "sum is 'star'; allowed: ring, cycles, shares or masks",
        f"kk: there is no such key; allowed: {known} (did you mean k?)",
    ]
    with pytest.raises(ScenarioError) as filed, as_scenario_errors({"sum": "votes"}, "protocol"):
        vr.PrivateKNN(**wrong)
    fields = [each.field for each in (filed.value, *filed.value.others)]
    assert fields == ["protocol.k", "votes", "protocol.kk"]
    assert len(str(filed.value).splitlines()) == len(fields)


@pytest.mark.parametrize(
    "error",
    [
        vr.InputError("mode", "b", "a"),
        vr.InputError("k", 0, "at least 1"),
        vr.InputError.because("it is closed", field="store"),
        ScenarioError.because("it is closed").with_others([ScenarioError("k", "x", "1")]),
        vr.InputError("k", 0, "at least 1").with_others([vr.InputError.because("it is closed")]),
        ScenarioError.of(vr.InputError("mode", "b", "a"), "run.mode"),
    ],
    ids=str,
)
def test_an_error_is_equal_in_another_process(error: vr.InputError) -> None:
    """It keeps its class and its fields."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert (again.field, again.value, again.message) == (error.field, error.value, error.message)


def _described(path: Path) -> Iterator[str]:
    """Return calls that pass a text of the program in place of a given value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        place = VALUE_AT.get(node.func.id, len(node.args))
        if place >= len(node.args):
            continue
        value = node.args[place]
        if isinstance(value, ast.JoinedStr) or (
            isinstance(value, ast.Constant) and isinstance(value.value, str)
        ):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(value)}"


def test_a_description_is_not_used_as_a_value() -> None:
    """`queries is of shape (1, 1)` is not English: such an error comes from `because`."""
    assert not [each for path in sorted(SOURCE.rglob("*.py")) for each in _described(path)]
