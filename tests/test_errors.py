"""Wrong input: the sentences of errors, and TOML files built to keep a process busy."""

import ast
import pickle
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.commands import SECONDS, Command

import veilring as vr
from veilring.config import (
    KEY_PARTS_MAX,
    MISTAKES_MAX,
    TOML_BYTES_MAX,
    as_scenario_errors,
    load_toml,
    read_toml,
)
from veilring.deployment.duties import load_config
from veilring.deployment.peers import PeerTerms
from veilring.errors import (
    SENTENCE_CHARACTERS_MAX,
    MissingExtra,
    PeerGivenUp,
    ScenarioError,
    TooManyLost,
)
from veilring.scenarios.comparison.question import read_network
from veilring.transport.roster import Roster

SOURCE = Path(vr.__file__).parent
# The position of the value among the arguments of what raises an error of input.
VALUE_AT = {"InputError": 1, "ScenarioError": 1, "require": 2, "require_key": 2}


def test_a_text_is_quoted_and_cut_and_a_number_is_not_quoted() -> None:
    """An empty text would be invisible, and a very long key would hide the allowed ones."""
    cut = f"'{'x' * 200}'… (10,000 characters)"
    for value, said in ((0, "0"), ("", "''"), ("x" * 10_000, cut)):
        assert str(vr.InputError("k", value, "a, b")) == f"k is {said}; allowed: a, b"
    assert len(str(vr.InputError("k", 10**300, "at least 1"))) < 300


def test_the_middle_of_a_long_sentence_is_left_out() -> None:
    """A value in a sentence hides neither its beginning nor the advice at its end."""
    text = str(vr.InputError.because(f"the key {'x' * 10_000} is unknown; remove it", field="key"))
    assert len(text) < SENTENCE_CHARACTERS_MAX + 100
    assert text.startswith("the key xxx")
    assert text.endswith("xxx is unknown; remove it")
    assert "(10,030 characters)" in text


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
        MissingExtra("polars", "parquet"),
        PeerGivenUp("a"),
        vr.PeerLost("a", orderly=True),
        TooManyLost(("a", "b"), 3, 4),
    ],
    ids=str,
)
def test_an_error_is_equal_in_another_process(error: Exception) -> None:
    """It keeps its class, its sentence and its fields."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert repr(vars(again)) == repr(vars(error))


@pytest.mark.slow
def test_a_description_is_not_used_as_a_value() -> None:
    """`queries is of shape (1, 1)` is not English: such an error comes from `because`."""

    def described(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            match node.args[VALUE_AT.get(node.func.id, len(node.args)) :]:
                case [ast.JoinedStr() | ast.Constant(value=str()) as value, *_]:
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(value)}"

    assert not [each for path in sorted(SOURCE.rglob("*.py")) for each in described(path)]


HOSTILE = {
    "a long key": ".".join(["a"] * 50_000) + " = 1",
    "a long key in quotes": ".".join(['"a"'] * 50_000) + " = 1",
    "a long key with spaces": "role = { " + " . ".join(["'a'"] * 50_000) + " = 1 }",
    "a long heading": f"[{'.'.join(['a'] * 50_000)}]",
    "brackets": f"a = {'[' * 100_000}",
    "braces": "a = " + "{ a = " * 100_000,
    "digits": f"a = {'1' * 100_000}",
    "size": "#" * (TOML_BYTES_MAX + 1),
}
READERS: list[Callable[[Path], object]] = [
    load_config,
    PeerTerms.load,
    read_network,
    lambda path: vr.load_scenario(str(path)),
    Roster.load,
]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_file_in_toml_is_read_within_limits(tmp_path: Path, text: str) -> None:
    """Configurations, terms, networks, scenarios and rosters end in an input error.

    It ends `veilring serve` with code 2 and no traceback.
    """
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    for reader in READERS:
        with pytest.raises(vr.InputError):
            reader(path)
    ended = Command(tmp_path, "serve", "hostile.toml", output=tmp_path / "ended.log")
    assert ended.wait(SECONDS) == 2
    assert "hostile.toml" in ended.output
    assert "Traceback" not in ended.output


def test_a_value_on_the_command_line_is_read_within_limits() -> None:
    """A value that nests too deeply is not parsed as TOML but kept as text."""
    with pytest.raises(ScenarioError, match=r"protocol\.k"):
        vr.load_scenario("wine", [f"protocol.k={'[' * 100_000}"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".".join(["a"] * KEY_PARTS_MAX) + " = 1", ""),
        (".".join(["a"] * (KEY_PARTS_MAX + 1)) + " = 1", "more than 64 parts"),
        ("a = [" + "0.5, " * 1000 + "]", ""),
        ('a = "' + "See example.org first. " * 1000 + '"', ""),
        ("# " + "e.g. this one, i.e. no key. " * 1000, ""),
        ("#" * TOML_BYTES_MAX, ""),
        ("#" * (TOML_BYTES_MAX + 1), "longer than 1,048,576 bytes"),
    ],
    ids=["key", "longer key", "list", "text", "comment", "file", "longer file"],
)
def test_a_file_is_read_up_to_its_limits(tmp_path: Path, text: str, said: str) -> None:
    """The message contains the limit; dots in lists, texts and comments make no key."""
    path = tmp_path / "long.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        load_toml(path)


def test_only_the_first_mistakes_of_a_file_are_reported(tmp_path: Path) -> None:
    """A file of another kind has thousands."""
    path = tmp_path / "other.toml"
    path.write_text("\n".join(f"key{number} = 1" for number in range(5000)))
    with pytest.raises(ScenarioError) as caught:
        read_toml(path, PeerTerms)
    assert len(str(caught.value).splitlines()) == MISTAKES_MAX
