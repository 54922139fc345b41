"""TOML files built to keep a process busy, and ordinary ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deployment.commands import SECONDS, Command

import veilring as vr
from veilring.config import (
    KEY_PARTS_MAX,
    MISTAKES_MAX,
    TOML_BYTES_MAX,
    load_toml,
    parse_toml,
    read_toml,
)
from veilring.deployment.duties import load_config
from veilring.deployment.peers import PeerTerms
from veilring.errors import ScenarioError
from veilring.scenarios.comparison import read_network
from veilring.transport.roster import Roster

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


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_file_in_toml_is_read_within_limits(
    tmp_path: Path, text: str, reader: Callable[[Path], object]
) -> None:
    """Configurations, terms, networks, scenarios and rosters end in an input error."""
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    with pytest.raises(vr.InputError):
        reader(path)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_serve_ends_with_a_sentence(tmp_path: Path, text: str) -> None:
    """A hostile configuration ends `veilring serve` with code 2 and no traceback."""
    (tmp_path / "hostile.toml").write_text(text)
    ended = Command(tmp_path, "serve", "hostile.toml", output=tmp_path / "ended.log")
    assert ended.wait(SECONDS) == 2
    assert "hostile.toml" in ended.output
    assert "Traceback" not in ended.output


def test_a_value_on_the_command_line_is_read_within_limits() -> None:
    """A value that nests too deeply is not parsed as TOML but kept as text."""
    with pytest.raises(ScenarioError, match=r"protocol\.k"):
        vr.load_scenario("wine", [f"protocol.k={'[' * 100_000}"])


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * KEY_PARTS_MAX) + " = 1",
        "a = [" + "0.5, " * 1000 + "]",
        'a = "' + "See example.org first. " * 1000 + '"',
        "# " + "e.g. this one, i.e. no key. " * 1000,
    ],
)
def test_ordinary_files_are_read(text: str) -> None:
    """Dots in lists, texts and comments make no key."""
    parse_toml(text)


def test_a_key_of_too_many_parts_is_named() -> None:
    """The message contains the limit."""
    with pytest.raises(ValueError, match="more than 64 parts"):
        parse_toml(".".join(["a"] * (KEY_PARTS_MAX + 1)) + " = 1")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """A file of exactly the limit is read, and one byte more is refused."""
    path = tmp_path / "long.toml"
    path.write_text("#" * TOML_BYTES_MAX)
    assert load_toml(path) == {}
    path.write_text("#" * (TOML_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="longer than 1,048,576 bytes"):
        load_toml(path)


def test_only_the_first_mistakes_of_a_file_are_reported(tmp_path: Path) -> None:
    """A file of another kind has thousands."""
    path = tmp_path / "other.toml"
    path.write_text("\n".join(f"key{number} = 1" for number in range(5000)))
    with pytest.raises(ScenarioError) as caught:
        read_toml(path, PeerTerms)
    assert len(str(caught.value).splitlines()) == MISTAKES_MAX
