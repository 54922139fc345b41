"""Configurations: their reading, and wrong files that are refused before anything is sent."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Literal

import pytest
from tests.deployment.commands import Deploy, call

from veilring.deployment import Duty, ask, load_config, load_config_of, serve
from veilring.deployment.config import TermsConfig, load_credentials
from veilring.deployment.peers import ClientConfig, MemberConfig
from veilring.deployment.surveys.client import SurveyClientConfig
from veilring.deployment.surveys.collector import CollectorConfig
from veilring.errors import ScenarioError
from veilring.protocols.prediction.system import IndKNN

FILES = 'identity = "own.key"\nroster = "roster.toml"\nterms = "terms.toml"\n'
MEMBER = f'{FILES}role = "member"\nrows = "ada.csv"\n'
CLIENT = f'{FILES}role = "client"\nask = "ada"\n'
COLLECTOR = f'{FILES}role = "collector"\n'
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
    """A configuration can be read from any working directory; a database URL is left unchanged."""
    member = load_config_of(write(tmp_path, MEMBER), MemberConfig, "this")
    assert (member.rows, member.state) == (f"{tmp_path}/ada.csv", f"{tmp_path}/config.db")
    assert member.listen == "127.0.0.1"  # nothing is opened to others unless told
    client = load_config_of(write(tmp_path, CLIENT), ClientConfig, "this")
    assert client.ask == "ada"
    url = "postgresql://census@db/survey"
    for text, state in ((COLLECTOR, member.state), (f'{COLLECTOR}state = "{url}"', url)):
        assert load_config_of(write(tmp_path, text), CollectorConfig, "this").state == state
    survey_client = load_config_of(write(tmp_path, SURVEY_CLIENT), SurveyClientConfig, "this")
    assert survey_client.state == member.state


@pytest.mark.parametrize(
    ("keys", "socket"),
    [
        ("", "config.sock"),
        ('state = "kept/census.db"', "kept/census.sock"),
        ('state = "postgresql://census@db/survey"', "config.sock"),
        ('socket = "run/it"', "run/it"),
    ],
)
def test_the_socket_is_beside_the_state(tmp_path: Path, keys: str, socket: str) -> None:
    """Without a state file it is beside the configuration, or where its own key says."""
    config = load_config_of(write(tmp_path, COLLECTOR + keys), CollectorConfig, "this")
    assert config.socket == f"{tmp_path}/{socket}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('role = "curator"', 'was renamed to administrator, with protocol.name = "ind-knn" in'),
        ('role = "places-client"', 'to client, with protocol.name = "tree-walk" in the terms'),
        ('role = "survey-client"', 'to client, with protocol.name = "ldp-bayes" here'),
        (
            'role = "server"\nterms = "terms.toml"\ncurators = ["ann"]',
            "curators: this key was renamed to administrators",
        ),
        ('role = "server"\nterms = "terms.toml"\nledger = "a"', "ledger: .* renamed to state"),
        (MEMBER + 'asked = "a"', "asked: this key was renamed to state"),
        (COLLECTOR + 'store = "a"', "store: this key was renamed to state"),
        (SURVEY_CLIENT + 'outbox = "a"', "outbox: this key was renamed to state"),
        (COLLECTOR.replace('terms = "terms.toml"', ""), "terms: the key is missing; give a path"),
        (COLLECTOR + "state = 3", "state is 3; allowed: a path, .* or postgresql://"),
        (COLLECTOR + "stat = 3", r"stat: there is no such key; .*did you mean state"),
        (SURVEY_CLIENT.replace("2.0", "0"), "budget is 0; allowed: a number above 0"),
        (SURVEY_CLIENT.replace("budget = 2.0", ""), "budget: the key is missing; give a number"),
        (SURVEY_CLIENT + 'task = "12"', "task is .12.; allowed: 64 hexadecimal digits, or nothing"),
        (SURVEY_CLIENT.replace('"patient"', "1"), "key is 1; .* the header of a column, or 'row"),
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
    """The error names the key, the value and the allowed values, or a former key's new name."""
    with pytest.raises(ScenarioError, match=message):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    """The error names the key of the configuration, or only the file if no key names it."""
    config = load_config(write(tmp_path, CLIENT))
    with pytest.raises(ScenarioError) as caught:
        load_config(tmp_path / "term.toml")
    assert str(caught.value) == f"there is no file {tmp_path / 'term.toml'}; check the path"
    with pytest.raises(ScenarioError, match=r"^identity: there is no file .*/own\.key; check"):
        load_credentials(config)
    call("keys", "new", "own", "--client", "--out", tmp_path)
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


ROLE = 'role = "member"\n'
WRONG = {
    ("owner", "serve owner.toml"): [
        ("owner.toml", "total = 4.0", "total = -1.0", "budgets.total is -1"),
        ("owner.toml", "total = 4.0", "", "budgets.total: the key is missing"),
    ],
    ("owner", "ask analyst-0.toml analyst-0.csv"): [
        ("analyst-0.toml", "radius = 0.2", "radius = 0.2\nk = 5", "give either radius or k"),
        ("analyst-0.toml", "radius = 0.2", "", "number of rows .* not public here; give a num"),
        ("analyst-0.toml", "radius = 0.2", "radius = 2.5", "radii must be from"),
        ("analyst-0.toml", "epsilon = 1.0", "epsilon = 1.5", "epsilon is 1.5"),
        ("analyst-0.toml", 'ask = "owner"', 'ask = "ann"', "ask is 'ann'"),
    ],
    ("votes", "serve party-1.toml"): [
        ("party-1.toml", ROLE, f"{ROLE}client = -1.0\n", "client is -1"),
        ("party-1.toml", ROLE, f"{ROLE}client = 1e7\n", "client: .* must be from 0"),
        ("party-1.toml", ROLE, f"{ROLE}clients.client = -1.0\n", "clients is -1"),
        ("party-1.toml", ROLE, f"{ROLE}clients.party-1 = 1\n", "party-1 are not clients of the r"),
    ],
    ("release", "serve party-1.toml"): [
        ("party-1.csv", "setosa", "orchid", "orchid"),
        ("party-1.csv", "sepal", "petiole", "lacks the column"),
        ("terms.toml", "high = 7.9", "high = 5.0", "outside of the range"),
    ],
    ("places", "serve server.toml"): [
        ("places.csv", "\n", "\n37.75,-122.4\n", "the terms have 99"),
        ("terms.toml", "south = ", "south = 37.75 #", "does not contain all places"),
        ("terms.toml", "north = ", "north = 37 #", "south must be below north"),
        ("terms.toml", "north = ", "north = 91 #", "a number from -90 to 90"),
    ],
    ("survey", "serve collector.toml"): [
        ("collector.toml", "", "reports_max_of.ada = 390\n", "'ada' is not a member of the roster")
    ],
}
"""By a deployment and a command: changes of a file, and words of the error."""


@pytest.mark.parametrize(
    ("started", "change"), [(started, change) for started in WRONG for change in WRONG[started]]
)
def test_a_wrong_file_is_refused_before_anything_is_sent(
    deploy: Deploy, started: tuple[str, str], change: tuple[str, str, str, str]
) -> None:
    """The error names the key, the value or the column, and nothing is charged."""
    (system, command), (*edit, message) = started, change
    deployed = deploy(system)
    deployed.edit(*edit)
    assert re.search(message, deployed.call(*command.split(), code=2).stderr)
    charged = {"owner": "owner", "votes": "party-1", "release": "party-1"}
    assert system not in charged or deployed.totals(charged[system]).answers == 0


NEW = "allowed: a file that does not exist yet"
ALONE = "--model fetches only the model"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--model model.json queries.csv", ALONE),
        ("--model model.json --out labels.csv", ALONE),
        ("--model model.json --epsilon 1", ALONE),
        ("--model terms.toml", NEW),
        ("queries.csv --out terms.toml", NEW),
    ],
)
def test_a_client_refuses_options_that_it_would_not_use(
    deploy: Deploy, options: str, said: str
) -> None:
    """A model is requested alone, and no file is overwritten by a model or by labels."""
    deployed = deploy("release")
    terms = (deployed.folder / "terms.toml").read_text()
    assert said in deployed.call("ask", "client.toml", *options.split(), code=2).stderr
    assert (deployed.folder / "terms.toml").read_text() == terms
