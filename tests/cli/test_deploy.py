"""`veilring deploy`: its options are the fields of an example and the keys of the terms."""

import tomllib
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from tests.cli.invoking import done, refused
from tests.deployment.commands import DEPLOYED

from veilring.deployment import load_config
from veilring.deployment.examples import EXAMPLES


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file in TOML."""
    return tomllib.loads(path.read_text())


@pytest.mark.parametrize("system", EXAMPLES)
def test_each_key_of_the_terms_table_is_an_option_with_its_help(system: str) -> None:
    """Each field of the example is an option too; a system's own name is not."""
    shown = done("deploy", system, "--help")
    example = EXAMPLES[system]
    keys = {*example.model_fields, *(example.section.model_fields if example.section else ())}
    for key in keys - {"name"}:
        assert f"--{key.replace('_', '-')} " in shown
    assert "--name" not in shown


@pytest.mark.parametrize(
    "words",
    [
        DEPLOYED["ring"],
        ("owner", "iris", "--k", "5"),
        ("prediction", "iris", "--clients", "2", "--apart"),
        ("survey", "iris", "--reports", "10"),
        ("verified-sum", "iris"),
    ],
    ids=itemgetter(0),
)
def test_the_commands_shown_read_what_was_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Each configuration is valid, each command names existing files; nothing is overwritten."""
    folder = tmp_path / "trial"
    out = done("deploy", *words, "--out", folder)
    named = {Path(word) for word in out.split() if word.startswith(str(folder))}
    configs = {path for path in named if path.suffix == ".toml"}
    shared = {folder / "roster.toml", folder / "terms.toml", *folder.glob("*.policy.toml")}
    assert configs == {*folder.glob("*.toml")} - shared
    for path in configs:
        load_config(path)
    assert all(path.exists() for path in named)
    refused("deploy", *words, "--out", folder)


@pytest.mark.parametrize(
    "words",
    [
        ["--tau", "0.5", "--epsilon", "7"],
        ["--set", "protocol.tau=0.5", "--set", "protocol.epsilon=7"],
        ["--tau", "0.4", "--set", "protocol.tau=0.5", "--epsilon", "7"],
    ],
)
def test_options_and_settings_are_written_into_the_terms(tmp_path: Path, words: list[str]) -> None:
    """They are added to the defaults of an example; `--set` takes precedence over an option."""
    done("deploy", "prediction", "iris", *words, "--out", tmp_path / "prediction")
    table = read(tmp_path / "prediction" / "terms.toml")["protocol"]
    assert (table["tau"], table["epsilon"]) == (0.5, 7)


def test_a_budget_pays_for_two_batches_by_default(tmp_path: Path) -> None:
    """This holds for votes at any epsilon, and for each analyst of an owner."""
    votes, owner = tmp_path / "votes", tmp_path / "owner"
    done("deploy", *DEPLOYED["votes"], "--set", "protocol.epsilon=10", "--out", votes)
    assert read(votes / "terms.toml")["budget"] == 20.0
    asked = ("--radius", "0.3", "--epsilon", "0.5", "--analysts", "3")
    done("deploy", "owner", "iris", *asked, "--out", owner)
    assert read(owner / "owner.toml")["budgets"] == {"total": 3.0, "analyst": 1.0}


def test_noisy_votes_deploy_with_their_defaults(tmp_path: Path) -> None:
    """The radius follows from the number of all rows, which the terms then state."""
    words = ("--protocol", "noisy-votes", "--set", "parties.count=3", "--out", tmp_path / "votes")
    done("deploy", "peers", "iris", *words)
    terms = read(tmp_path / "votes" / "terms.toml")
    assert (terms["protocol"], terms["rows"]) == ({"name": "noisy-votes"}, 112)


AGES = "\n".join(["age", *(str(20 + row) for row in range(40))])
TRIPS = "\n".join(["age,travel", *(f"{20 + row},{row % 3}" for row in range(30))])
WARDS = "\n".join(["size,ward,class", *(f"{n},{'abc'[n % 3]},{n % 2}" for n in range(30))])


@pytest.mark.parametrize(
    ("rows", "options", "feature"),
    [
        (TRIPS, ["--column", "age"], {"name": "age", "low": 20.0, "high": 49.0}),
        (TRIPS, ["--column", "travel"], {"name": "travel", "categories": ["0", "1", "2"]}),
        (WARDS, ["--column", "ward"], {"name": "ward", "categories": ["a", "b", "c"]}),
        (AGES, [], {"name": "age", "low": 20.0, "high": 59.0}),
        (AGES, ["--kind", "means"], {"name": "age", "low": 20.0, "high": 59.0}),
    ],
    ids=["numbers", "label", "categories", "only column", "means"],
)
def test_a_survey_asks_for_one_column(
    tmp_path: Path, rows: str, options: list[str], feature: dict[str, object]
) -> None:
    """It may be the label of other systems; the only column needs neither a name nor a label."""
    source, folder = tmp_path / "my.csv", tmp_path / "survey"
    source.write_text(rows)
    done("deploy", "survey", source, "--kind", "frequency", *options, "--out", folder)
    assert read(folder / "terms.toml")["features"] == [feature | {"agreed": False}]
    for number in range(2):
        written = (folder / f"survey-client-{number}.csv").read_text()
        assert written.startswith(f"client,{feature['name']}\nclient-{number},")
