"""`veilring explore`: systems and roles of the user's own."""

from pathlib import Path

import pytest
from tests.cli.invoking import invoke

HASTY = "docs.examples.secure_maximum:HASTY"
PLANTED = "tests.testing.auditing.planted"
ONE_WORKER = ("--workers", "1")


def test_a_role_of_the_user_is_explored_by_name() -> None:
    """A role that is right in all worlds is reported as one."""
    _, out, _ = invoke("explore", f"{PLANTED}:MASKED", "--seeds", "3", *ONE_WORKER)
    assert out.startswith("seeds: 3, of which 0 went wrong; runs: ")


def test_the_smallest_failing_world_of_a_role_is_printed() -> None:
    """A role that is wrong after a fault fails, with two parties and one fault in the message."""
    code, _, error = invoke("explore", HASTY, "--seeds", "20", *ONE_WORKER)
    assert code == 1
    assert f"replay: veilring explore {HASTY} --seed " in error
    assert ": 2 parties, 1 run, " in error


def test_every_message_of_a_role_is_struck() -> None:
    """Each class of fault is applied to each message of the role with its own inputs."""
    code, out, _ = invoke("explore", f"{PLANTED}:MASKED", "--every-message")
    assert code == 0
    assert "of which 0 went wrong" in out


def test_a_system_of_the_user_is_explored_with_its_parameters() -> None:
    """Its parameters are set like those of a built-in system, and so are keys of the scenario."""
    given = ("--set", "protocol.mistake=label", "--set", "parties.count=3")
    _, out, error = invoke("explore", f"{PLANTED}:Majority", "--seed", "1", *given, *ONE_WORKER)
    assert out.startswith("seeds: 1, of which 1 went wrong")
    assert "the labels of party-0 differ from those of `Setup.label`" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no.such:thing",), "cannot be imported"),
        (("json:dumps",), "json:dumps is neither a System nor a RoleClaims"),
        ((HASTY, "--set", "data.queries=2"), "leave out --set"),
        ((HASTY, "--protocol", "release"), "--protocol needs a scenario; leave it out"),
        ((HASTY, "--shrink", "small.toml"), "--shrink needs a scenario; leave it out"),
        ((HASTY, "--report", "worlds"), "--report needs a scenario; leave it out"),
        ((f"{PLANTED}:Majority", "--set", "protocol.k=3"), "k: there is no such key"),
    ],
)
def test_wrong_input_is_refused_before_any_world(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name or an option that needs a scenario ends the command with exit code 2."""
    monkeypatch.chdir(tmp_path)
    code, _, error = invoke("explore", *arguments)
    assert code == 2
    assert said in error
    assert not list(tmp_path.iterdir())
