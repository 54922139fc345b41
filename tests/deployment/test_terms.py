"""The terms of a deployment: the reading of rows, queries and clients, and invalid terms."""

import csv
import datetime as dt
import json
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from veilring.data import sources
from veilring.data.table import scale_to_unit
from veilring.deployment.config import Terms
from veilring.deployment.examples.peers import write_peers
from veilring.deployment.owner import OwnerTerms
from veilring.deployment.peers import PeerTerms
from veilring.deployment.prediction import PredictionTerms
from veilring.deployment.surveys.terms import SurveyTerms, read_published
from veilring.errors import InputError, ProtocolViolation, ScenarioError
from veilring.protocols.ring.system import PrivateKNN
from veilring.transport.handshake import PROTOCOL_VERSION, About, Hello, check_hello
from veilring.transport.roster import Member, Roster, make_identity

COLUMNS = """
classes = ["no", "yes"]
features = [
    { name = "age", low = 0, high = 100 },
    { name = "colour", categories = ["red", "blue"] },
    { name = "flat", low = 3, high = 3 },
]
"""
TERMS = f"{COLUMNS}[protocol]\nk = 2\n"
RELEASE = f'rows = 112\nbudget = 4.5{COLUMNS}[protocol]\nname = "release"\nepsilon = 3.0\n'
VOTES = f'budget = 8.0{COLUMNS}[protocol]\nname = "noisy-votes"\nepsilon = 4.0\nradius = 0.3\n'
OWNER = f'{COLUMNS}[protocol]\nname = "data-owner"\n'
PREDICTION = 'classes = ["a", "b"]\ndimensions = 3\n[protocol]\ntau = 0.5\n'
SURVEY = """
classes = ["no", "yes"]
features = [
    { name = "age", low = 0, high = 100 },
    { name = "colour", categories = ["red", "green", "blue"] },
]
[protocol]
kind = "discrete-bayes"
epsilon = 1.5
closes = 2027-01-31T00:00:00Z
"""
NUMERIC = SURVEY.replace("discrete-bayes", "gaussian-bayes")
PLAIN = SURVEY.replace('classes = ["no", "yes"]', "")
MEANS = PLAIN.replace("discrete-bayes", "means")
TWO = PLAIN.replace("discrete-bayes", "frequency")
FREQUENCY = TWO.replace('{ name = "age", low = 0, high = 100 },', "")
CLIENTS = "age,colour,note,label\n50,blue,x,yes\n200,red,y,no\n0,green,z,no\n"


def written(tmp_path: Path, text: str, name: str = "rows.csv") -> Path:
    """Write a file."""
    path = tmp_path / name
    path.write_text(text)
    return path


def peer_terms(tmp_path: Path, text: str = TERMS, parties: int | None = None) -> PeerTerms:
    """Write terms of peers, and read them."""
    return PeerTerms.load(written(tmp_path, text, "terms.toml"), parties)


def survey_terms(tmp_path: Path, text: str) -> SurveyTerms:
    """Write terms of a survey, and read them."""
    return SurveyTerms.load(written(tmp_path, text, "terms.toml"))


def test_rows_are_scaled_by_public_ranges_and_categories(tmp_path: Path) -> None:
    """A number becomes its position in its range, and a category a one-hot group.

    Queries need no label, and columns may be in any order.
    """
    terms = peer_terms(tmp_path)
    text = "colour,age,flat,ignored,label\nblue,50,3,x,yes\nred,200,7,y,no\n"
    rows = terms.read_rows(written(tmp_path, text))
    np.testing.assert_array_equal(rows.features, [[0.5, 0, 1, 0], [1, 1, 0, 0]])
    assert rows.labels.tolist() == [1, 0]
    queries = terms.read_queries(written(tmp_path, "flat,age,colour\n3,0,red\n"))
    np.testing.assert_array_equal(queries, [[0, 1, 0, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,flat,label\n1,3,no\n", "lacks the column 'colour'"),
        ("age,colour,flat,label\n1,green,3,no\n", r"'colour', line 2 is 'green'; .*red, blue"),
        ("age,colour,flat,label\n1,red,3,no\nold,red,3,no\n", r"'age', line 3: this is not a fin"),
        ("age,colour,flat,label\ninf,red,3,no\n", r"'age', line 2: this is not a finite"),
        (
            "age,colour,flat,label\n1,red,3,maybe\n",
            r"'label', line 2 is 'maybe'; .*no, yes .the last column is taken as the label; move",
        ),
        ("age,colour,flat,label\n1,,3,no\n", r"'colour', line 2 is empty"),
    ],
)
def test_invalid_cells_are_named(tmp_path: Path, text: str, message: str) -> None:
    """The error names the column, the row and the allowed values, also to a survey's clients."""
    with pytest.raises(InputError, match=message):
        peer_terms(tmp_path).read_rows(written(tmp_path, text))
    with pytest.raises(InputError, match=message):
        survey_terms(tmp_path, SURVEY.replace('"green", ', "")).read_clients(
            written(tmp_path, text)
        )


INVALID: Final[list[tuple[str, Callable[[Path], Terms], list[tuple[str, str, str]]]]] = [
    (
        TERMS,
        PeerTerms.load,
        [
            ('classes = ["no", "yes"]', "", "classes: give the names of all classes"),
            ('["no", "yes"]', '["no", "no"]', "classes is .*without repeated names"),
            ('name = "flat"', 'name = "age"', "features is .*without repeated names"),
            ('["red", "blue"]', '["red", "red"]', r"features\.colour\.categories is .*repeated"),
            ("k = 2", "k = 0", "protocol.k is 0; allowed: a whole number of at least 1"),
            ("k = 2", 'sum = "cycles"', r"protocol\.cycles is 1"),
            ("k = 2", "z = 1", r"protocol\.z: there is no such key"),
            ("low = 3, high = 3", "low = 4, high = 3", r"features\.flat\.high is 3"),
            ("[protocol]", "[protocol", "a file in TOML"),
        ],
    ),
    (
        RELEASE,
        partial(PeerTerms.load, parties=3),
        [
            ("epsilon = 3.0", "epsilon = 0", "protocol.epsilon is 0; allowed: a number above 0"),
            ("epsilon = 3.0", "epsilon = 1e4", "protocol.epsilon is 10000"),
            ("epsilon = 3.0", "delta = 0.5", "protocol.delta is 0.5; allowed: a number from 0"),
            ("epsilon = 3.0", "delta = -1", "protocol.delta is -1; allowed: a number from 0"),
            ("rows = 112", "", "rows: .*must be declared"),
            ("rows = 112", "rows = 0", "rows is 0; allowed: a whole number of at least 1"),
            ("epsilon = 3.0", "tolerated = 3", "protocol.tolerated: with 3 colluding"),
            ("epsilon = 3.0", "trusted = true", "roster: if `protocol.trusted` is true"),
            ("budget = 4.5", "", "budget: release spends epsilon; set the total"),
            ("budget = 4.5", "budget = 2.9", "budget is 2.9; allowed: at least the 3 epsilon"),
            ("budget = 4.5", "budget = 0", "budget is 0; allowed: a number above 0"),
            ('name = "release"\nepsilon = 3.0', "", "budget: private-knn spends no"),
        ],
    ),
    (
        RELEASE,
        partial(PeerTerms.load, parties=2),
        [("rows = 112", "rows = 112", "roster is 2; allowed: at least 3")],
    ),
    (
        VOTES,
        partial(PeerTerms.load, parties=3),
        [
            ("radius = 0.3", "r = 0.3", "protocol.r: there is no such key"),
            ("epsilon = 4.0", "tolerated = 3", "protocol.tolerated is 3; allowed: below"),
            ("epsilon = 4.0", 'sum = "cycles"\ncycles = 2', "protocol.cycles is 2"),
            ("[protocol]", "[votes]", "votes: .* renamed to protocol, with name = .noisy-votes"),
            ("budget = 8.0", "budget = 3.0", "budget is 3.0; allowed: at least"),
            ("epsilon = 4.0", "epsilon = 0", "protocol.epsilon is 0; allowed: a number above"),
        ],
    ),
    (
        OWNER,
        OwnerTerms.load,
        [
            ('name = "data-owner"', 'accounting = "record"', "protocol.accounting: .* no such key"),
            ('name = "data-owner"', "epsilon = 99.0", "protocol.epsilon is 99"),
            ("[protocol]", "[labelling]", "labelling: .* renamed to protocol, .* = .data-owner"),
            ('name = "data-owner"', "public_rows = true", "rows is None; allowed: a number, since"),
            ("[protocol]", "row = 3\n[protocol]\npublic_rows = true", "row: there is no such key"),
            ('name = "data-owner"', 'conversion = "none"', "protocol.conversion is 'none'"),
        ],
    ),
    (
        PREDICTION,
        PredictionTerms.load,
        [
            ("dimensions = 3", "", "give either dimensions or features"),
            ("= 3\n", '= 3\nfeatures = [{ name = "x" }]\n', "give either dimensions or features"),
            ("dimensions = 3", "dimensions = 3\norigin = [1.0]", "the origin has 1 numbers"),
            ("dimensions = 3", "dimensions = 3\norigin_price = 0.01", "a price needs an origin"),
            ("tau = 0.5", 'kernel = "rbf"\nwidth = 1e13', "protocol.width is 1000"),
            ("tau = 0.5", "sigma2 = 1e-300", "protocol.sigma2 is 1e-300"),
            ("tau = 0.5", "epsilon = 0.0", "protocol.epsilon is 0.0"),
            ("tau = 0.5", "queries = 3", "protocol.queries is 3; .* from 4 to"),
            ("tau = 0.5", "tau = 2.0", "protocol.tau is 2.0"),
            ("tau = 0.5", "", r"tau = \"auto\" needs the queries, .*; give a number from 0 to 1"),
            ("tau = 0.5", 'clients = "alone"', "protocol.clients is 'alone'"),
            ("tau = 0.5", 'queriers = "apart"', "this key was renamed to clients"),
            ("[protocol]", "[prediction]", "prediction: .* renamed to protocol, .* .ind-knn"),
            ("tau = 0.5", "query = 3", r"no such key; .*did you mean queries\?"),
        ],
    ),
    (
        SURVEY,
        SurveyTerms.load,
        [
            ('classes = ["no", "yes"]', "", r"classes: discrete-bayes needs two or more classes"),
            ('["no", "yes"]', '["no", "no"]', "classes is .*without repeated names"),
            ('"discrete-bayes"', '"means"', r"classes: means takes no classes"),
            ('"discrete-bayes"', '"oracle"', "protocol.kind is 'oracle'; .*: frequency, words"),
            ("epsilon = 1.5", "", "protocol.epsilon: the key is missing; give a number above 0"),
            ("epsilon = 1.5", "epsilon = 0", "protocol.epsilon is 0; allowed: a number above 0"),
            ("[protocol]", "[protocol]\noracle = 'rot13'", "protocol.oracle is .*auto, de"),
            ("[protocol]", "[protocol]\nbins = 1", "protocol.bins is 1; allowed: a whole number"),
            ("[protocol]", "[protocol]\nminimum = 0", "protocol.minimum is 0; allowed"),
            ("00:00:00Z", "00:00:00", "protocol.closes is .*with its zone"),
            ('["red", "green", "blue"]', '["red"]', r"colour.categories is .*two or more"),
            ("[protocol]", "[protocol]\nsalt = 1", r"protocol\.salt: there is no such"),
            ("high = 100", "high = -1", r"features\.age\.high is -1"),
            (
                SURVEY,
                TWO.replace("frequency", "words"),
                "asks one question, and there are 2 columns",
            ),
        ],
    ),
]
"""Files of terms, the function that reads each, and changes with words of the error."""


@pytest.mark.parametrize(
    ("text", "load", "change"),
    [(text, load, change) for text, load, changes in INVALID for change in changes],
)
def test_invalid_terms_are_refused(
    tmp_path: Path, text: str, load: Callable[[Path], Terms], change: tuple[str, str, str]
) -> None:
    """The error names the key, the value and the allowed values."""
    old, new, message = change
    assert old in text
    path = written(tmp_path, text.replace(old, new, 1), "terms.toml")
    with pytest.raises(ScenarioError, match=message):
        load(path)


def test_cycles_need_enough_parties(tmp_path: Path) -> None:
    """Two cycles are accepted with five parties, and refused with four."""
    text = TERMS.replace("k = 2", 'k = 2\nsum = "cycles"\ncycles = 2')
    for parties in (None, 5):
        expected = PrivateKNN(k=2, sum="cycles", cycles=2)
        assert peer_terms(tmp_path, text, parties).protocol == expected
    with pytest.raises(ScenarioError, match=r"protocol\.cycles is 2; allowed: at most 1 for 4"):
        peer_terms(tmp_path, text, 4)


def test_the_digest_depends_on_every_key(tmp_path: Path) -> None:
    """The digest depends on every key, but not on the layout of the file."""
    one = peer_terms(tmp_path)
    assert peer_terms(tmp_path, one.to_toml()).digest == one.digest
    assert peer_terms(tmp_path, one.to_toml().replace("k = 2", "k = 3")).digest != one.digest


AGE, RED = 'name = "age", low = 0', '"red", "blue"'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), ""),
        (("high = 100", "high = 10"), "features.age.high: 10.0 at bob, 100.0 at ada"),
        ((RED, '"red"'), 'features.colour.categories: ["red"] at bob, ["blue", "red"] at ada'),
        ((RED, '"blue", "red"'), "features.colour.categories: in another order at bob than at ada"),
        (('"no", "yes"', '"yes", "no"'), "classes: in another order at bob than at ada"),
        (('"no", "yes"', '"no", "y"'), 'classes: ["no", "y"] at bob, ["no", "yes"] at ada'),
        ((AGE, 'name = "years"'), "features.age.high: nothing at bob, 100.0 at ada"),
        (("k = 2", "k = 3"), "protocol.k: 3 at bob, 2 at ada"),
    ],
)
def test_other_ranges_and_orders_are_said_in_words(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    """Parties name the column and the end of the range that differ, not two hashes.

    Equal files are equal terms, and the version of the messages is one of them.
    """
    ours, theirs = (peer_terms(tmp_path, text).keys for text in (TERMS, TERMS.replace(*change)))
    assert ours["private-knn format"] == str(PrivateKNN.messages_format)
    keys = [make_identity(name) for name in ("ada", "bob")]
    roster = Roster(tuple(Member.of(key, "h", port) for port, key in enumerate(keys, 1)))
    hello = Hello(
        version=PROTOCOL_VERSION,
        roster=roster.hash,
        sender="bob",
        receiver="ada",
        about=About.of_terms(theirs).text,
    )
    today, about = dt.date(2030, 6, 1), About.of_terms(ours)
    found = check_hello(hello, roster, me="ada", peer="bob", ours=about, today=today)
    reason = "" if found is None else found.reason
    assert reason.startswith(f"the terms differ: {said}") if said else not reason


def test_many_columns_are_compared_by_one_hash(tmp_path: Path) -> None:
    """However many columns there are, the terms fit into a greeting and the protocol is named."""
    columns = ", ".join(f'{{ name = "c{number}", high = 2 }}' for number in range(2_000))
    keys = peer_terms(tmp_path, f'classes = ["no", "yes"]\nfeatures = [{columns}]\n').keys
    assert keys["features"].startswith("SHA-256 ")
    assert About.of_terms(keys).terms == keys


LEVELS, SEXES = ("high", "low", "middle"), ("female", "male")


def test_a_trials_terms_are_a_draft_for_deployment(tmp_path: Path) -> None:
    """Text columns have categories, numeric columns have ranges, and the files fit them.

    It sees the same numbers as a scenario run on the same data. Ranges and categories that come
    from rows are marked as not agreed; those of a public data set are not.
    """
    source, rng = tmp_path / "patients.csv", np.random.default_rng(1)
    with source.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")  # as a spreadsheet writes it
        writer.writerow(["sex", "age", "level", "ill"])
        for number, age in enumerate(rng.integers(20, 80, size=60).tolist()):
            ill = "yes" if age > 50 else "no"
            writer.writerow([SEXES[number % 2], age, LEVELS[number % 3], ill])
    table = sources.load(str(source))
    folder = tmp_path / "ring"
    names = write_peers(table, PrivateKNN(), folder, parties="abc", seed=0, port=7311)
    sex, age, level = tomllib.loads((folder / "terms.toml").read_text())["features"]
    assert sex == {"name": "sex", "categories": list(SEXES), "agreed": False}
    assert (age["name"], list(age)) == ("age", ["name", "low", "high", "agreed"])
    assert level == {"name": "level", "categories": list(LEVELS), "agreed": False}
    assert (folder / "terms.toml").read_text().startswith("# What has `agreed = false` is from")
    public = tmp_path / "public"
    write_peers(sources.load("iris"), PrivateKNN(), public, parties="abc", seed=0, port=7311)
    assert "agreed" not in (public / "terms.toml").read_text()

    terms = PeerTerms.load(folder / "terms.toml")
    read = [terms.read_rows(folder / f"{name}.csv") for name in (*names, "queries")]
    found = np.vstack([np.column_stack([rows.features, rows.labels]) for rows in read])
    expected = np.column_stack([scale_to_unit(table).X, table.y])
    np.testing.assert_array_equal(sorted(found.tolist()), sorted(expected.tolist()))


COLOURS = '"colour", categories = ["red", "green", "blue"]'


@pytest.mark.parametrize(
    ("text", "rows", "domains"),
    [
        (SURVEY, [[50, 2], [100, 0], [0, 1]], [2, 6, 6]),
        (NUMERIC, [[50, 0, 0, 1], [100, 1, 0, 0], [0, 0, 1, 0]], [2]),
        (MEANS, [[50, 0, 0, 1], [100, 1, 0, 0], [0, 0, 1, 0]], []),
        (FREQUENCY, [[2], [0], [1]], [3]),
        (FREQUENCY.replace(COLOURS, '"age", high = 100'), [[4], [7], [0]], [8]),
    ],
    ids=["discrete-bayes", "gaussian-bayes", "means", "categories", "bins"],
)
def test_rows_are_read_as_the_survey_requires(
    tmp_path: Path, text: str, rows: list[list[float]], domains: list[int]
) -> None:
    """Ranges clip values, and categories become numbers or one-hot columns."""
    terms = survey_terms(tmp_path, text)
    pool = terms.read_clients(written(tmp_path, CLIENTS))
    np.testing.assert_array_equal(pool.rows, rows)
    if terms.classes:
        assert pool.labels.tolist() == [1, 0, 0]
    survey = terms.task.survey
    assert [q.cells for q in survey.questions][: len(domains)] == domains
    valid = survey.validated(pool.rows, pool.labels)
    for number, question in enumerate(survey.questions):
        reports = question.perturb(survey.encode(*valid, number), np.random.default_rng(0))
        assert question.accept(reports).all()
    assert survey.exact_epsilon <= 1.5


def test_each_category_has_its_own_number_and_each_bin_its_range(tmp_path: Path) -> None:
    """No rounding moves a category to another bin, for any number of categories."""
    names = [f"c{n}" for n in range(97)]
    text = SURVEY.replace('["red", "green", "blue"]', json.dumps(names))
    terms = survey_terms(tmp_path, text.replace("epsilon = 1.5", "epsilon = 1.5\nbins = 8"))
    cells = "".join(f"{n * 12.5},{name},no\n" for n, name in enumerate(names))
    pool = terms.read_clients(written(tmp_path, "age,colour,label\n" + cells))
    survey = terms.task.survey
    valid = survey.validated(pool.rows, pool.labels)
    np.testing.assert_array_equal(survey.encode(*valid, 2) // 2, np.arange(97))
    bins = survey.encode(*valid, 1) // 2
    assert bins[:10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]


@pytest.mark.parametrize("text", [SURVEY, NUMERIC, MEANS, FREQUENCY])
def test_a_published_task_is_rebuilt_from_its_terms(tmp_path: Path, text: str) -> None:
    """A client that reads a published task has the same survey, numbers and hash."""
    terms = survey_terms(tmp_path, text)
    assert survey_terms(tmp_path, terms.to_toml()).task.digest == terms.task.digest
    again = read_published(terms.task.encoded, "census")
    assert again == terms
    assert again.task.digest == terms.task.digest
    assert again.task.survey == terms.task.survey


def test_the_minimum_is_not_part_of_the_task(tmp_path: Path) -> None:
    """A collector may change the minimum without a new task; clients do not see it."""
    usual = survey_terms(tmp_path, SURVEY).task
    terms = survey_terms(tmp_path, SURVEY.replace("[protocol]", "[protocol]\nminimum = 7"))
    assert terms.protocol.minimum == 7
    assert terms.task.encoded == usual.encoded
    assert b"minimum" not in usual.encoded


@pytest.mark.parametrize(
    "change",
    [
        lambda task: task["numbers"]["questions"][0].update(own=1),
        lambda task: task["terms"]["survey"].update(epsilon=3.0),
        lambda task: task["terms"]["survey"].update(minimum=7),
        lambda task: task["numbers"].update(salt=1),
        lambda task: task.pop("terms"),
        lambda task: task["terms"]["survey"].update(oracle="rot13"),
    ],
    ids=["likelier", "other terms", "a minimum", "a number more", "no terms", "no such oracle"],
)
def test_numbers_that_differ_from_the_terms_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """A client refuses a task with any number that its own terms do not give."""
    encoded = survey_terms(tmp_path, SURVEY).task.encoded
    content = json.loads(encoded)
    change(content)
    changed = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert changed != encoded
    with pytest.raises(ProtocolViolation) as caught:
        read_published(changed, "census")
    assert caught.value.culprit == "census"


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"terms":1}']
)
def test_bytes_that_are_not_a_task_name_the_collector(body: bytes) -> None:
    """Any published bytes are either read or blamed on the collector."""
    with pytest.raises(ProtocolViolation, match="census"):
        read_published(body, "census")
