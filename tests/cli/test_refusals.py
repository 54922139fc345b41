"""Wrong input of commands: exit code 2, one sentence, and nothing is written."""

import json
import shlex
from pathlib import Path
from typing import Final

import pytest
from tests.cli.invoking import invoke, refused

HASTY: Final = "docs.examples.secure_maximum:HASTY"
PLANTED: Final = "tests.testing.auditing.planted"
VOTES: Final = "deploy peers iris --protocol noisy-votes --set parties.count=3 --out new"
OWNER: Final = "deploy owner iris --out new"
SURVEY: Final = "deploy survey iris --out new"
TRIPS: Final = "deploy survey trips.csv --kind frequency --out new"
TUNE: Final = "tune iris --parties 3 --protocol"
SCENARIO: Final = "needs a scenario; leave it out"
AS_LABEL: Final = "its only column, 'travel', is taken as the label"
REFUSED: Final = {
    "audit no-such": "tree-walk, or module:NAME",
    "audit no.such:thing": "cannot be imported",
    "audit shop/mine.py:CLAIMS": "such as mine:CLAIMS",
    "audit json:dumps": "with veilring.testing.auditing.RoleClaims",
    "audit data-owner --set epsilon": "KEY=VALUE",
    "audit data-owner --set epsilon=0": "epsilon",
    f"audit {PLANTED}:MASKED --set masked=false": "leave out --set",
    "audit release --coalition party-1,party-9": "of party-0, party-1, party-2",
    f"audit {PLANTED}:MASKED --coalition ada": "name it in `RoleClaims`",
    "audit data-owner --out .": "nothing is overwritten",
    "compare iris --parties 2": "parties is 2; allowed: a whole number from 3",
    "compare iris --epsilon 0": "epsilon is 0",
    "compare iris --epsilon 99": "to 10",
    "compare iris --epsilon one": "numbers, such as 0.5,1,2",
    "compare iris --out taken.html": "nothing is overwritten",
    "compare iris --plot picture.png": "ends in .svg",
    "compare iris --network nowhere.toml": "--network",
    "compare wines": "data is 'wines'; allowed: wine, breast-cancer",
    "explore no.such:thing": "cannot be imported",
    "explore json:dumps": "give a value for each party, or name a RoleClaims",
    "explore json:__name__": "neither a coroutine function nor an object with a role",
    f"explore {HASTY} --set data.queries=2": "set either `role` or `data`, not both",
    f"explore {HASTY} --protocol release": "set either `role` or `protocol`, not both",
    f"explore {PLANTED}:Majority --protocol release": f"--protocol {SCENARIO}",
    f"explore {PLANTED}:Majority --shrink small.toml": f"--shrink {SCENARIO}",
    f"explore {PLANTED}:Majority --report worlds": f"--report {SCENARIO}",
    f"explore {PLANTED}:Majority --set protocol.k=3": "k: there is no such key",
    "run wines": "breast-cancer",
    "run wine --set protocol.kk=3": "did you mean k?",
    "run wine --runtime cloud": "memory, tls, processes or simulated",
    "run wine --seed -1": "run.seed",
    "run wine --sed 1": "--seed",
    "run wine --out taken": "--out",
    "run wine --set data.source=gone.csv --out room": "gone.csv",
    "run my.csv": "data.source is my.csv; allowed: the path of an existing CSV",
    "run trips.csv --schema gone.toml": "data.schema_file: there is no file",
    """run wine --set 'protocol.P0="1"'""": "protocol.P0 is '1'; allowed: a number",
    "run wine --set protocol.k=seven": "protocol.k is 'seven'; allowed: a whole",
    "run wine --set network.runtime=abacus": "network.runtime is 'abacus'",
    f"{TUNE} data-owners": "did you mean data-owner",
    f"{TUNE} data-owner --set parties.count=3": "protocol.KEY=VALUE",
    f"{TUNE} data-owner --set protocol.radios=3": "radios",
    f"{TUNE} data-owner --epsilon 0": "epsilon is 0",
    "run iris --out page.html": "--out is page.html; allowed: a folder; `veilring report` writes",
    "report nothing": "nothing is not a folder; give a folder written by",
    "report .": "has none of report.json and error.json",
    "scenarios wines": "breast-cancer",
    "systems ldp-bays": "did you mean ldp-bayes?",
    "systems radius": "it is now data-owner",
    "oracles --epsilon 21": "epsilon",
    f"{VOTES} --set protocol.sum=star": "protocol.sum is 'star'; allowed: ring, cycles",
    f"{VOTES} --set protocol.summ=ring": "protocol.summ: there is no such key",
    f"{VOTES} --set ring": "--set is 'ring'; allowed: table.key=value",
    f"{VOTES} --budget 0.5": "budget is 0.5; allowed: at least the 1 epsilon that a batch costs",
    f"{OWNER} --radius 0.2 --k 5": "give either --radius or --k",
    f"{OWNER} --radius -0.1": "radii must be from 0 to 2",
    f"{OWNER} --k 0": "--k",
    f"{OWNER} --radius 0.2 --epsilon 2 --set protocol.epsilon=1": "--epsilon",
    f"{OWNER} --radius 0.2 --analyst -1": "analyst must be from 0",
    f"{OWNER} --r 0.4": "--radius",  # an option that was cut short is completed
    f"{SURVEY} --kind oracle": "protocol.kind is 'oracle'; allowed: frequency, words, means",
    f"{SURVEY} --epsilon 0": "protocol.epsilon is 0.0; allowed: a number above 0",
    f"{SURVEY} --survey-clients 0": "--survey-clients is 0; allowed: 1 to",
    f"{SURVEY} --kind frequency": "--column is required with --kind frequency or words",
    f"{SURVEY} --reports 200 --minimum 201": "--minimum is 201; allowed: 1 to 200, as reports",
    TRIPS: "--column is required with --kind frequency or words",
    f"{TRIPS} --column wing": "--column is 'wing'; allowed: a column: age, travel",
    "deploy survey one.csv --out new": AS_LABEL,
    "deploy survey one.csv --out ./new": "veilring deploy survey --kind frequency or means",
    "deploy peers iris --out taken": "--out",
    "keys new ada b/b --out new": "b/b",
    "keys new ada bob ada --out new": "ada is given twice; name each party once",
    "keys new ada bob --port 65535 --out new": "port is 65536",
    "keys new ada bob --out taken": "bob.key; allowed: a file that does not exist yet",
    "keys new cyd dan --out taken": "dan.member.toml; allowed: a file that does not exist yet",
    "keys roster taken/own.toml --out taken.html": "taken.html",
    "classify one.csv one.csv": "veilring: one.csv is not a released model: ",
}
"""Command lines in a folder with some files, and words of the error."""
FILES: Final = {
    "taken.html": "mine",
    "taken/report.json": "{}",
    "taken/bob.key": "mine",
    "taken/dan.member.toml": "mine",
    "taken/own.toml": "",
    "trips.csv": "\n".join(["age,travel", *(f"{20 + row},{row % 3}" for row in range(30))]),
    "one.csv": "travel\nbus\ncar\n",
}
AS_JSON: Final = (
    "run wine --set protocol.k=0",
    "run nothing",
    "compare nothing",
    "compare wine --epsilon none",
    "tune nothing --protocol ind-knn",
    "ledger show nothing.ledger",
    "estimate nothing.toml",
    "tally nothing.toml nothing.parquet",
    "oracles --domain 0",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which has some files."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("line", REFUSED)
def test_wrong_input_is_refused_before_anything_is_done(line: str, folder: Path) -> None:
    """The error names the option, the value and the allowed values; no file is touched."""
    assert REFUSED[line] in refused(*shlex.split(line))
    files = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == {folder / name: text for name, text in FILES.items()}
    assert not (folder / "new").exists()


@pytest.mark.parametrize("line", AS_JSON)
def test_a_wrong_input_is_an_object_with_json(line: str) -> None:
    """It has the sentence of standard error, and each wrong input with the allowed values."""
    code, out, err = invoke(*line.split(), "--json")
    assert code == 2
    told = json.loads(out)
    assert err == f"veilring: {told['message']}\n"
    assert told["error"].endswith("Error")
    for wrong in told["inputs"]:
        assert set(wrong) == {"field", "value", "allowed", "message"}
        assert wrong["allowed"] in err
