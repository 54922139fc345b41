"""`veilring deploy`: its options are the fields of an example and the keys of the terms."""

import tomllib
from pathlib import Path

import pytest
from tests.cli.invoking import invoke

from veilring.deployment.examples import EXAMPLES


@pytest.mark.parametrize("system", EXAMPLES)
def test_each_key_of_the_terms_table_is_an_option_with_its_help(system: str) -> None:
    """Each field of the example is an option too; a system's own name is not."""
    code, shown, _ = invoke("deploy", system, "--help")
    assert code == 0
    example = EXAMPLES[system]
    keys = {*example.model_fields, *(example.section.model_fields if example.section else ())}
    for key in keys - {"name"}:
        assert f"--{key.replace('_', '-')} " in shown
    assert "--name" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ["--sum", "ring", "--batch", "7"],
        ["--set", "votes.sum=ring", "--set", "votes.batch=7"],
        ["--sum", "cycles", "--set", "votes.sum=ring", "--batch", "7"],
    ],
)
def test_options_and_settings_are_written_into_the_terms(tmp_path: Path, words: list[str]) -> None:
    """They are added to the defaults of an example; `--set` takes precedence over an option."""
    folder = tmp_path / "votes"
    code, _, error = invoke("deploy", "votes", "iris", "--radius", "0.3", *words, "--out", folder)
    assert code == 0, error
    votes = tomllib.loads((folder / "terms.toml").read_text())["votes"]
    assert votes == {"epsilon": 4.0, "budget": 8.0, "radius": 0.3, "sum": "ring", "batch": 7}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sum", "star"], "votes.sum is 'star'; allowed: ring, cycles, shares or masks"),
        (["--set", "votes.summ=ring"], "votes.summ: there is no such key"),
        (["--set", "ring"], "--set is 'ring'; allowed: table.key=value"),
        (["--budget", "1"], "votes.budget is 1.0; allowed: at least epsilon"),
    ],
)
def test_a_value_refused_by_terms_is_refused_before_writing(
    tmp_path: Path, words: list[str], message: str
) -> None:
    """The error names the key, like the error for a terms file."""
    folder = tmp_path / "votes"
    code, _, error = invoke("deploy", "votes", "iris", "--radius", "0.3", *words, "--out", folder)
    assert code == 2
    assert message in " ".join(error.split())
    assert not folder.exists()


def test_a_budget_pays_for_two_batches_by_default(tmp_path: Path) -> None:
    """This holds for votes at any epsilon, and for each analyst of an owner."""
    words: list[str | Path]
    words = ["--radius", "0.3", "--epsilon", "10", "--out", tmp_path / "votes"]
    code, _, error = invoke("deploy", "votes", "iris", *words)
    assert code == 0, error
    assert tomllib.loads((tmp_path / "votes" / "terms.toml").read_text())["votes"]["budget"] == 20.0
    words = ["--radius", "0.3", "--epsilon", "0.5", "--analysts", "3", "--out", tmp_path / "owner"]
    code, _, error = invoke("deploy", "owner", "iris", *words)
    assert code == 0, error
    budgets = tomllib.loads((tmp_path / "owner" / "owner.toml").read_text())["budgets"]
    assert budgets == {"total": 3.0, "analyst": 1.0}


def test_an_option_that_was_cut_short_is_completed() -> None:
    """An unknown option names those that begin like it: `--r` of an owner was `--radius`."""
    code, _, err = invoke("deploy", "owner", "iris", "--r", "0.4")
    assert code == 2
    assert "--radius" in err
