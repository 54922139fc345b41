"""`veilring deploy`: its options are the fields of an example and the keys of the terms."""

import tomllib
from operator import itemgetter
from pathlib import Path

import pytest
from tests.cli.invoking import invoke
from tests.deployment.commands import VOTES

from veilring.deployment import load_config
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
        ("peers", "wine", "--set", "parties.count=3"),
        ("owner", "iris", "--k", "5"),
        ("prediction", "iris", "--clients", "2", "--apart"),
        ("survey", "iris", "--reports", "10"),
    ],
    ids=itemgetter(0),
)
def test_the_commands_shown_read_what_was_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Each configuration is valid, each command names existing files; nothing is overwritten."""
    folder = tmp_path / "trial"
    code, out, error = invoke("deploy", *words, "--out", folder)
    assert code == 0, error
    named = {Path(word) for word in out.split() if word.startswith(str(folder))}
    configs = {path for path in named if path.suffix == ".toml"}
    assert configs == {*folder.glob("*.toml")} - {folder / "roster.toml", folder / "terms.toml"}
    for path in configs:
        load_config(path)
    assert all(path.exists() for path in named)
    assert invoke("deploy", *words, "--out", folder)[0] == 2


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
    folder = tmp_path / "prediction"
    code, _, error = invoke("deploy", "prediction", "iris", *words, "--out", folder)
    assert code == 0, error
    table = tomllib.loads((folder / "terms.toml").read_text())["protocol"]
    assert (table["tau"], table["epsilon"]) == (0.5, 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "protocol.sum=star"], "protocol.sum is 'star'; allowed: ring, cycles"),
        (["--set", "protocol.summ=ring"], "protocol.summ: there is no such key"),
        (["--set", "ring"], "--set is 'ring'; allowed: table.key=value"),
        (["--budget", "0.5"], "budget is 0.5; allowed: at least the 1 epsilon that a batch costs"),
    ],
)
def test_a_value_refused_by_terms_is_refused_before_writing(
    tmp_path: Path, words: list[str], message: str
) -> None:
    """The error names the key, like the error for a terms file."""
    folder = tmp_path / "votes"
    code, _, error = invoke("deploy", "peers", "iris", *VOTES, *words, "--out", folder)
    assert code == 2
    assert message in " ".join(error.split())
    assert not folder.exists()


def test_a_budget_pays_for_two_batches_by_default(tmp_path: Path) -> None:
    """This holds for votes at any epsilon, and for each analyst of an owner."""
    words: list[str | Path]
    words = [*VOTES, "--set", "protocol.epsilon=10", "--out", tmp_path / "votes"]
    code, _, error = invoke("deploy", "peers", "iris", *words)
    assert code == 0, error
    assert tomllib.loads((tmp_path / "votes" / "terms.toml").read_text())["budget"] == 20.0
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


def test_noisy_votes_deploy_with_their_defaults(tmp_path: Path) -> None:
    """The radius follows from the number of all rows, which the terms then state."""
    folder = tmp_path / "votes"
    words: list[str | Path]
    words = ["--protocol", "noisy-votes", "--set", "parties.count=3", "--out", folder]
    code, _, error = invoke("deploy", "peers", "iris", *words)
    assert code == 0, error
    terms = tomllib.loads((folder / "terms.toml").read_text())
    assert terms["protocol"] == {"name": "noisy-votes"}
    assert terms["rows"] == 112


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
    words: list[str | Path] = ["--kind", "frequency", *options, "--out", folder]
    code, _, error = invoke("deploy", "survey", source, *words)
    assert code == 0, error
    assert tomllib.loads((folder / "terms.toml").read_text())["features"] == [feature]
    for number in range(2):
        written = (folder / f"survey-client-{number}.csv").read_text()
        assert written.startswith(f"client,{feature['name']}\nclient-{number},")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (TRIPS, ["--kind", "frequency"], "--column is required with --kind frequency"),
        (
            TRIPS,
            ["--kind", "frequency", "--column", "wing"],
            "--column is 'wing'; allowed: a column: age, travel",
        ),
        ("travel\nbus\ncar\n", [], "its only column, 'travel', is taken as the label"),
        ("travel\nbus\ncar\n", [], "veilring deploy survey --kind frequency or means"),
    ],
)
def test_a_survey_without_its_column_is_refused(
    tmp_path: Path, rows: str, options: list[str], said: str
) -> None:
    """The error names the option or the kinds of survey that take the file."""
    source = tmp_path / "my.csv"
    source.write_text(rows)
    code, _, error = invoke("deploy", "survey", source, *options, "--out", tmp_path / "survey")
    assert code == 2
    assert said in error
    assert not (tmp_path / "survey").exists()
