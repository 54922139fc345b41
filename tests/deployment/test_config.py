"""Configurations and keys: reading, writing and refusals on the command line."""

import asyncio
import inspect
import re
import stat
from pathlib import Path
from typing import Literal

import pytest
from tests.deployment.commands import call

from veilring.deployment import Duty, ask, load_config, load_config_of, serve
from veilring.deployment.collector import CollectorConfig
from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.peers import ClientConfig, MemberConfig
from veilring.deployment.survey_client import SurveyClientConfig
from veilring.errors import ScenarioError
from veilring.protocols.prediction.system import IndKNN
from veilring.transport.roster import Roster

MEMBER = """
role = "member"
identity = "ada.key"
roster = "roster.toml"
terms = "terms.toml"
rows = "ada.csv"
"""
CLIENT = """
role = "client"
identity = "clerk.key"
roster = "roster.toml"
terms = "terms.toml"
ask = "ada"
"""

COLLECTOR = """
role = "collector"
identity = "census.key"
roster = "roster.toml"
terms = "terms.toml"
"""
SURVEY_CLIENT = """
role = "client"
protocol = { name = "ldp-bayes" }
identity = "clinic.key"
roster = "roster.toml"
collector = "census"
budget = 2.0
key = "patient"
"""


def write(tmp_path: Path, text: str) -> Path:
    """Write a configuration, and terms of a system that has its role."""
    path = tmp_path / "config.toml"
    systems = {"collector": "ldp-bayes", "server": "ind-knn"}
    system = next((systems[role] for role in systems if f'"{role}"' in text), "private-knn")
    (tmp_path / "terms.toml").write_text(f'protocol.name = "{system}"')
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    """A configuration can be read from any working directory."""
    member = load_config_of(write(tmp_path, MEMBER), MemberConfig, "this")
    assert member.rows == str(tmp_path / "ada.csv")
    assert member.listen == "127.0.0.1"  # nothing is opened to others unless told
    client = load_config_of(write(tmp_path, CLIENT), ClientConfig, "this")
    assert client.ask == "ada"


def test_a_store_is_a_file_or_a_url(tmp_path: Path) -> None:
    """A path is relative to the configuration, and a database URL is left unchanged."""
    collector = load_config_of(write(tmp_path, COLLECTOR), CollectorConfig, "this")
    assert collector.state == str(tmp_path / "config.db")
    url = "postgresql://census@db/survey"
    path = write(tmp_path, COLLECTOR + f'state = "{url}"')
    collector = load_config_of(path, CollectorConfig, "this")
    assert collector.state == url
    survey_client = load_config_of(write(tmp_path, SURVEY_CLIENT), SurveyClientConfig, "this")
    assert survey_client.state == str(tmp_path / "config.db")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'role = "curator"',
            'the role curator was renamed to administrator, with protocol.name = "ind-knn" in',
        ),
        ('role = "places-client"', 'to client, with protocol.name = "tree-walk" in the terms'),
        ('role = "survey-client"', 'to client, with protocol.name = "ldp-bayes" here'),
        (
            'role = "server"\nterms = "terms.toml"\ncurators = ["ann"]',
            "curators: this key was renamed to administrators",
        ),
        (
            'role = "server"\nterms = "terms.toml"\nledger = "a"',
            "ledger: this key was renamed to state",
        ),
        (MEMBER + 'asked = "a"', "asked: this key was renamed to state"),
        (COLLECTOR + 'store = "a"', "store: this key was renamed to state"),
        (SURVEY_CLIENT + 'outbox = "a"', "outbox: this key was renamed to state"),
    ],
)
def test_a_former_name_is_refused_with_the_new_one(tmp_path: Path, text: str, message: str) -> None:
    """A configuration of an earlier version is refused, and the error gives the new name."""
    with pytest.raises(ScenarioError) as caught:
        load_config(write(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COLLECTOR.replace('terms = "terms.toml"', ""), "terms: the key is missing; give a path"),
        (COLLECTOR + "state = 3", "state is 3; allowed: a path, .* or postgresql://"),
        (COLLECTOR + "stat = 3", r"stat: there is no such key; .*did you mean state"),
        (SURVEY_CLIENT.replace("2.0", "0"), "budget is 0; allowed: a number above 0"),
        (SURVEY_CLIENT.replace("budget = 2.0", ""), "budget: the key is missing; give a number"),
        (SURVEY_CLIENT + 'task = "12"', "task is .12.; allowed: 64 hexadecimal digits, or nothing"),
        (
            SURVEY_CLIENT.replace('"patient"', "1"),
            "key is 1; allowed: the header of a column, or 'row",
        ),
        (MEMBER.replace('"member"', '"oracle"'), "role is 'oracle'; allowed: member, server"),
        (
            MEMBER.replace('"member"', '"administrator"'),
            r"role is .*; allowed: member, client, which are the roles of private-knn \(protocol.n",
        ),
        (MEMBER.replace("terms.toml", "gone.toml"), "^terms: there is no file .*gone.toml; check"),
        (MEMBER.replace('role = "member"', ""), "role: the key is missing; give one of member"),
        (MEMBER.replace('rows = "ada.csv"', ""), "rows: the key is missing"),
        (MEMBER.replace("rows", "row"), r"no such key; .*did you mean rows\?"),
        (CLIENT.replace('"ada"', "3"), "ask is 3; allowed: the name of a party"),
        (MEMBER + "x = ", "a file in TOML"),
    ],
)
def test_an_invalid_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    with pytest.raises(ScenarioError, match=message):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    """The error names the key of the configuration, or only the file if no key names it."""
    config = load_config(write(tmp_path, CLIENT))
    with pytest.raises(ScenarioError) as caught:
        load_config(tmp_path / "term.toml")
    assert str(caught.value) == f"there is no file {tmp_path / 'term.toml'}; check the path"
    with pytest.raises(ScenarioError, match=r"^identity: there is no file .*/clerk\.key; check"):
        load_credentials(config)
    call("keys", "new", "clerk", "--client", "--out", tmp_path)
    with pytest.raises(ScenarioError, match=r"^roster: there is no file .*/roster\.toml; check"):
        load_credentials(config)


def test_a_script_serves_and_asks_by_the_path_of_a_configuration(tmp_path: Path) -> None:
    """As with the commands, a role that cannot serve or ask is refused at once."""
    client, member = write(tmp_path, CLIENT), tmp_path / "member.toml"
    member.write_text(MEMBER)
    for role, path in ((serve(str(member)), member), (ask(client, "queries.csv"), client)):
        assert inspect.iscoroutine(role), path
        role.close()
    with pytest.raises(ScenarioError, match="not support `veilring serve`; its role member does"):
        serve(client).close()
    with pytest.raises(
        ScenarioError, match="not support `veilring ask` with a file; its role client does"
    ):
        ask(member, "queries.csv").close()


class Oracle(TermsConfig):
    """The configuration of a server of another package."""

    role: Literal["server"]
    answer: int


async def serve_oracle(config: Oracle) -> None:
    """End with the answer."""
    raise LookupError(config.answer)


DUTIES = {"server": Duty(Oracle, serve=serve_oracle)}
"""The duties of a system of another package."""


def test_a_system_names_the_module_that_deploys_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another package serves its own system, with a role and keys of its own configuration."""
    monkeypatch.setattr(IndKNN, "deployment", __name__)
    path = write(tmp_path, MEMBER.replace("member", "server").replace("rows", "answer = 42 #"))
    with pytest.raises(LookupError, match="42"):
        asyncio.run(serve(path))
    with pytest.raises(ScenarioError, match="role is 'client'; allowed: server, which are"):
        load_config(write(tmp_path, CLIENT + '# "server"'))


def test_keys_are_created_once_and_added_to_a_roster(tmp_path: Path) -> None:
    """Each party creates its own key; the roster is assembled from the public parts."""
    for name, port in (("ada", 7311), ("bob", 7312)):
        options = ("--host", "10.0.0.1", "--port", port, "--out", tmp_path)
        call("keys", "new", name, *options)
        assert stat.S_IMODE((tmp_path / f"{name}.key").stat().st_mode) == 0o600
    call("keys", "new", "clerk", "--client", "--out", tmp_path)
    parts = [tmp_path / f"{name}.member.toml" for name in ("ada", "bob", "clerk")]
    roster = tmp_path / "roster.toml"
    shown = call("keys", "roster", *parts, "--out", roster)
    loaded = Roster.load(roster)
    assert loaded.names == ("ada", "bob", "clerk")
    assert loaded.parties == ("ada", "bob")
    assert loaded.hash.hex() in shown.output
    assert call("keys", "show", roster).output == shown.output
    assert "PRIVATE" not in "".join(part.read_text() for part in parts)


def test_several_parties_are_made_in_one_command(tmp_path: Path) -> None:
    """Each name gets its own key and, in this order, the next port."""
    command = ["keys", "new", "ada", "bob", "cyd", "--port", "7400", "--out", str(tmp_path)]
    made = call(*command)
    (ada,), (bob,), (cyd,) = (
        Roster.load(tmp_path / f"{name}.member.toml").members for name in ("ada", "bob", "cyd")
    )
    assert (ada.port, bob.port, cyd.port) == (7400, 7401, 7402)
    assert len({ada.fingerprint, bob.fingerprint, cyd.fingerprint}) == 3
    assert made.output.count("fingerprint ") == 3
    assert len(list(tmp_path.glob("*.key"))) == 3


@pytest.mark.parametrize(
    ("arguments", "existing", "said"),
    [
        (["ada", "b/b"], "", "b/b"),
        (["ada", "bob", "ada"], "", "ada is given twice; name each party once"),
        (["ada", "bob", "--port", "65535"], "", "port is 65536"),
        (["ada", "bob"], "bob.key", "bob.key; allowed: a file that does not exist yet"),
        (["ada", "bob"], "bob.member.toml", "bob.member.toml; allowed: a file that does not"),
    ],
)
def test_a_refused_name_leaves_no_files(
    arguments: list[str], existing: str, said: str, tmp_path: Path
) -> None:
    """If one name cannot be made, no file of any name is written, and existing files are kept."""
    folder = tmp_path / "keys"
    if existing:
        folder.mkdir()
        (folder / existing).write_text("mine")
    made = call("keys", "new", *arguments, "--out", folder, code=2)
    assert said in made.output
    left = {path.name: path.read_text() for path in folder.glob("*")}
    assert left == ({existing: "mine"} if existing else {})
    assert folder.exists() == bool(existing)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """An existing key, roster or deployment stays unchanged, and the exit code shows it."""
    new = ("keys", "new", "ada", "--out", tmp_path)
    call(*new)
    key = (tmp_path / "ada.key").read_bytes()
    call(*new, code=2)
    assert (tmp_path / "ada.key").read_bytes() == key
    (tmp_path / "roster.toml").write_text("mine")
    call("keys", "roster", tmp_path / "ada.member.toml", "--out", tmp_path / "roster.toml", code=2)
    assert (tmp_path / "roster.toml").read_text() == "mine"
    call("deploy", "peers", "wine", "--out", tmp_path, code=2)


@pytest.mark.parametrize(
    ("command", "text", "allowed"),
    [
        (["serve"], CLIENT, "; its role member does"),
        (["serve"], SURVEY_CLIENT, "; its role collector does"),
        (["ask", "q.csv"], MEMBER, "; its role client does"),
        (["submit", "rows.csv"], CLIENT, ""),
        (["submit", "rows.csv"], COLLECTOR, "; its role client does"),
        (["estimate"], SURVEY_CLIENT, "; its role collector does"),
    ],
)
def test_each_command_refuses_the_other_roles(
    tmp_path: Path, command: list[str], text: str, allowed: str
) -> None:
    """A member does not ask, a client does not serve, and a survey client does not estimate."""
    name, *files = command
    result = call(name, write(tmp_path, text), *files, code=2)
    assert re.search(rf"does not support `veilring {name}`( with a file)?{allowed}$", result.output)


def test_labels_never_overwrite_a_file(tmp_path: Path) -> None:
    """An existing file is refused before anything is asked, and stays unchanged."""
    labels = tmp_path / "labels.csv"
    labels.write_text("label\nold\n")
    command = ["ask", str(write(tmp_path, CLIENT)), "q.csv", "--out", str(labels)]
    result = call(*command, code=2)
    assert "allowed: a file that does not exist yet" in " ".join(result.output.split())
    assert labels.read_text() == "label\nold\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "oracle"], "protocol.kind is 'oracle'; allowed: frequency, means"),
        (["--epsilon", "0"], "protocol.epsilon is 0.0; allowed: a number above 0"),
        (["--survey-clients", "0"], "--survey-clients is 0; allowed: 1 to"),
        (
            ["--kind", "frequency"],
            "--column is required with --kind frequency, unless the table has one column, and",
        ),
    ],
)
def test_an_impossible_trial_collection_is_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    """Impossible settings are refused before any file is written."""
    command = ["deploy", "survey", "iris", *options, "--out", str(tmp_path / "survey")]
    result = call(*command, code=2)
    assert message in result.output
    assert not (tmp_path / "survey").exists()
