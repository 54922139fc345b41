"""The terms of a deployment: the reading of rows and queries, and invalid terms."""

import csv
import datetime as dt
import tomllib
from pathlib import Path

import numpy as np
import pytest

from veilring.data.sources import load
from veilring.data.table import scale_to_unit
from veilring.deployment.examples import write_peers
from veilring.deployment.peers import PeerTerms
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ring.system import PrivateKNN
from veilring.transport.handshake import PROTOCOL_VERSION, About, Hello, check_hello
from veilring.transport.roster import Member, Roster, make_identity

ROSTER = Roster((Member.of(make_identity("ada"), "h", 1), Member.of(make_identity("bob"), "h", 2)))

TERMS = """
classes = ["no", "yes"]
features = [
    { name = "age", low = 0, high = 100 },
    { name = "colour", categories = ["red", "blue"] },
    { name = "flat", low = 3, high = 3 },
]
[protocol]
k = 2
"""


@pytest.fixture
def terms_file(tmp_path: Path) -> Path:
    """Write valid terms."""
    path = tmp_path / "terms.toml"
    path.write_text(TERMS)
    return path


def table(tmp_path: Path, text: str) -> Path:
    """Write a CSV file."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return path


def test_rows_are_scaled_by_public_ranges_and_categories(terms_file: Path, tmp_path: Path) -> None:
    """A number becomes its position in its range, and a category a one-hot group."""
    text = "colour,age,flat,ignored,label\nblue,50,3,x,yes\nred,200,7,y,no\n"
    rows = PeerTerms.load(terms_file).read_rows(table(tmp_path, text))
    np.testing.assert_array_equal(rows.features, [[0.5, 0, 1, 0], [1, 1, 0, 0]])
    assert rows.labels.tolist() == [1, 0]


def test_queries_need_no_label(terms_file: Path, tmp_path: Path) -> None:
    """The columns of the terms suffice, in any order."""
    queries = PeerTerms.load(terms_file).read_queries(table(tmp_path, "flat,age,colour\n3,0,red\n"))
    np.testing.assert_array_equal(queries, [[0, 1, 0, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,flat,label\n1,3,no\n", "lacks the column 'colour'"),
        ("age,colour,flat,label\n1,green,3,no\n", r"'colour', line 2 is 'green'; .*red, blue"),
        (
            "age,colour,flat,label\n1,red,3,no\nold,red,3,no\n",
            r"'age', line 3: this is not a finite",
        ),
        ("age,colour,flat,label\ninf,red,3,no\n", r"'age', line 2: this is not a finite"),
        (
            "age,colour,flat,label\n1,red,3,maybe\n",
            r"'label', line 2 is 'maybe'; .*no, yes .the last column is taken as the label; move",
        ),
        ("age,colour,flat,label\n1,,3,no\n", r"'colour', line 2 is empty"),
    ],
)
def test_invalid_cells_are_named(terms_file: Path, tmp_path: Path, text: str, message: str) -> None:
    """The error names the column, the row and the allowed values."""
    with pytest.raises(InputError, match=message):
        PeerTerms.load(terms_file).read_rows(table(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('classes = ["no", "yes"]', "", "classes: the key is missing"),
        ('["no", "yes"]', '["no", "no"]', "classes is .*without repeated names"),
        ('name = "flat"', 'name = "age"', "features is .*without repeated names"),
        ('["red", "blue"]', '["red", "red"]', r"features\.colour\.categories is .*repeated names"),
        ("k = 2", "k = 0", "protocol.k is 0; allowed: a whole number of at least 1"),
        ("k = 2", 'sum = "cycles"', r"protocol\.cycles is 1"),
        ("k = 2", "z = 1", r"protocol\.z: there is no such key"),
        ("low = 3, high = 3", "low = 4, high = 3", r"features\.flat\.high is 3"),
        ("[protocol]", "[protocol", "a file in TOML"),
    ],
)
def test_invalid_terms_are_refused(terms_file: Path, old: str, new: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    text = terms_file.read_text()
    assert old in text
    terms_file.write_text(text.replace(old, new, 1))
    with pytest.raises(ScenarioError, match=message):
        PeerTerms.load(terms_file)


def test_cycles_need_enough_parties(terms_file: Path) -> None:
    """Two cycles are accepted with five parties, and refused with four."""
    text = terms_file.read_text()
    terms_file.write_text(text.replace("k = 2", 'k = 2\nsum = "cycles"\ncycles = 2', 1))
    for parties in (None, 5):
        assert PeerTerms.load(terms_file, parties).protocol == PrivateKNN(
            k=2, sum="cycles", cycles=2
        )
    with pytest.raises(ScenarioError, match=r"protocol\.cycles is 2; allowed: at most 1 for 4"):
        PeerTerms.load(terms_file, 4)


def test_the_digest_depends_on_every_key(terms_file: Path) -> None:
    """The digest depends on every key, but not on the layout of the file."""
    one = PeerTerms.load(terms_file)
    terms_file.write_text(one.to_toml())
    assert PeerTerms.load(terms_file).digest == one.digest
    terms_file.write_text(one.to_toml().replace("k = 2", "k = 3"))
    assert PeerTerms.load(terms_file).digest != one.digest


def test_terms_of_a_table_scale_as_a_scenario_does(tmp_path: Path) -> None:
    """A trial deployment sees the same numbers as a scenario run on the same data."""
    wine = load("wine")
    terms = PeerTerms.of_table(wine, protocol=PrivateKNN())
    lines = [",".join([*wine.features.names, "label"])]
    lines += [
        ",".join([*map(str, row), wine.features.classes[label]])
        for row, label in zip(wine.X.tolist(), wine.y.tolist(), strict=True)
    ]
    rows = terms.read_rows(table(tmp_path, "\n".join(lines)))
    np.testing.assert_array_equal(rows.features, scale_to_unit(wine).X)
    np.testing.assert_array_equal(rows.labels, wine.y)


def differences(tmp_path: Path, change: tuple[str, str]) -> str:
    """Return the reason for which ada refuses bob, whose terms have one change."""
    path = tmp_path / "other.toml"
    path.write_text(TERMS.replace(*change))
    (tmp_path / "terms.toml").write_text(TERMS)
    ours, theirs = (PeerTerms.load(tmp_path / name).keys for name in ("terms.toml", "other.toml"))
    hello = Hello(
        version=PROTOCOL_VERSION,
        roster=ROSTER.hash,
        sender="bob",
        receiver="ada",
        about=About.of_terms(theirs).text,
    )
    today, about = dt.date(2030, 6, 1), About.of_terms(ours)
    found = check_hello(hello, ROSTER, me="ada", peer="bob", ours=about, today=today)
    return "" if found is None else found.reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("high = 100", "high = 10"), "features.age.high: 10.0 at bob, 100.0 at ada"),
        (
            ('"red", "blue"', '"red"'),
            'features.colour.categories: ["red"] at bob, ["blue", "red"] at ada',
        ),
        (
            ('"red", "blue"', '"blue", "red"'),
            "features.colour.categories: in another order at bob than at ada",
        ),
        (('"no", "yes"', '"yes", "no"'), "classes: in another order at bob than at ada"),
        (('"no", "yes"', '"no", "y"'), 'classes: ["no", "y"] at bob, ["no", "yes"] at ada'),
        (
            ('{ name = "age", low = 0, high = 100 }', '{ name = "years", high = 100 }'),
            "features.age.high: nothing at bob, 100.0 at ada",
        ),
        (("k = 2", "k = 3"), "protocol.k: 3 at bob, 2 at ada"),
    ],
)
def test_other_ranges_and_orders_are_said_in_words(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    """Parties name the column and the end of the range that differ, not two hashes."""
    assert differences(tmp_path, change).startswith(f"the terms differ: {said}")


def test_equal_terms_do_not_differ(tmp_path: Path) -> None:
    """Equal files are equal terms, and the version of the messages is one of them."""
    assert differences(tmp_path, ("", "")) == ""
    keys = PeerTerms.load(tmp_path / "terms.toml").keys
    assert keys["private-knn format"] == str(PrivateKNN.messages_format)


def test_many_columns_are_compared_by_one_hash(tmp_path: Path) -> None:
    """However many columns there are, the terms fit into a greeting and the protocol is named."""
    columns = ", ".join(f'{{ name = "c{number}", high = 2 }}' for number in range(2_000))
    path = tmp_path / "terms.toml"
    path.write_text(f'classes = ["no", "yes"]\nfeatures = [{columns}]\n')
    keys = PeerTerms.load(path).keys
    assert keys["features"].startswith("SHA-256 ")
    assert About.of_terms(keys).terms == keys


LEVELS, SEXES = ("high", "low", "middle"), ("female", "male")


def write_patients(path: Path) -> None:
    """Write a CSV file of numbers and words with the line ends of a spreadsheet."""
    rng = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(["sex", "age", "level", "ill"])
        for number in range(60):
            age = int(rng.integers(20, 80))
            writer.writerow(
                [SEXES[number % 2], age, LEVELS[number % 3], "yes" if age > 50 else "no"]
            )


def test_a_trials_terms_are_a_draft_for_deployment(tmp_path: Path) -> None:
    """Text columns have categories, numeric columns have ranges, and the files fit them."""
    source = tmp_path / "patients.csv"
    write_patients(source)
    table = load(str(source))
    folder = tmp_path / "ring"
    names = write_peers(table, PrivateKNN(), folder, parties="abc", seed=0, port=7311)
    sex, age, level = tomllib.loads((folder / "terms.toml").read_text())["features"]
    assert sex == {"name": "sex", "categories": list(SEXES)}
    assert (age["name"], age.keys()) == ("age", {"name", "low", "high"})
    assert level == {"name": "level", "categories": list(LEVELS)}

    terms = PeerTerms.load(folder / "terms.toml")
    read = [terms.read_rows(folder / f"{name}.csv").features for name in names]
    read.append(terms.read_queries(folder / "queries.csv"))
    whole = scale_to_unit(table).X
    found = sorted(np.concatenate(read).tolist())
    np.testing.assert_array_equal(found, sorted(whole.tolist()))
