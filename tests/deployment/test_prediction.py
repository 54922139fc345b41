"""A deployed prediction server: served, asked, changed and killed by commands."""

import asyncio
import csv
import json
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from tests.data.standin import install_stand_in
from tests.deployment.commands import call
from tests.deployment.prediction_crashes import Served, crash_rounds

from veilring.data.npz import read_vectors
from veilring.deployment import load_config
from veilring.deployment import prediction as asking
from veilring.deployment.duties import serve
from veilring.deployment.prediction import PredictionTerms, read_queries, read_records
from veilring.errors import InputError, ScenarioError
from veilring.privacy.accounting import GaussianDP
from veilring.privacy.budgets import budget_units
from veilring.protocols.prediction.algorithm.directions import private_mean, quantise
from veilring.protocols.prediction.messages import ServerRules
from veilring.protocols.prediction.state import open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.testing.ports import reserve_ports

CRASHES = 2
# With this much to spend an answer is the label of the nearest rows.
RICH = IndKNN(queries=100, epsilon=200.0, tau=0.5, sigma2=0.1)

Deploy = Callable[[IndKNN], Served]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Deploy servers that are killed at the end."""
    made: list[Served] = []

    def make(prediction: IndKNN) -> Served:
        made.append(Served.deployed(tmp_path / f"served-{len(made)}", prediction))
        made[-1].serve()
        return made[-1]

    yield make
    for served in made:
        served.kill()


@pytest.mark.slow
def test_kills_refund_no_budget_and_restore_no_record(tmp_path: Path) -> None:
    """After any kill, each answer has one charge, and forgotten records stay forgotten."""
    seen = asyncio.run(crash_rounds(tmp_path / "served", CRASHES, seed=7))
    assert seen.answered > CRASHES
    assert seen.retried >= seen.answered
    assert seen.interrupted >= CRASHES
    assert seen.changed > 0


def test_a_deployed_server_runs_from_its_files_to_the_end_of_its_stream(deploy: Deploy) -> None:
    """It labels, repeats answers after a kill, forgets records, and ends after T queries."""
    served = deploy(RICH)
    folder = served.folder
    assert "server is ready: 0 records, 0 queries answered" in served.log.read_text()
    asked = ("ask", folder / "client-0.toml", folder / "client-0.csv")
    added = call("records", "add", folder / "registrar.toml", folder / "records.csv")
    assert "134 records were added" in added.stdout
    first = call(*asked)
    labels = [row["label"] for row in csv.DictReader(first.stdout.splitlines())]
    with (folder / "client-0.csv").open() as file:
        truth = [row["label"] for row in csv.DictReader(file)]
    # The noise is a fiftieth of what classes lead by, so these are the labels of a kernel vote.
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) >= 18

    served.kill()
    served.serve()
    assert "server is ready: 134 records, 22 queries answered" in served.log.read_text()
    assert call(*asked).stdout == first.stdout
    assert (
        "0 records"
        in call("records", "add", folder / "registrar.toml", folder / "records.csv").stdout
    )

    everybody = folder / "ids.txt"
    everybody.write_text("".join(f"record-{number}\n" for number in range(134)))
    assert b"record-77" in served.everything()
    gone = call("records", "forget", folder / "registrar.toml", "--from", everybody)
    assert "134 records were forgotten" in gone.stdout
    assert b"record-" not in served.everything()
    unknown = call("records", "forget", folder / "registrar.toml", "record-3", "nobody", code=2)
    assert "ids is 'nobody'; allowed: an id that was added before" in unknown.output

    queries = folder / "many.csv"
    lines = (folder / "client-1.csv").read_text().splitlines()
    queries.write_text("\n".join([lines[0], *lines[1:] * 4]) + "\n")
    refused = call("ask", folder / "client-1.toml", queries, code=1)
    assert "budget (total) is exhausted: 88 queries requested, 78 left" in refused.output
    shown = call("ledger", "show", served.state, "--json")
    assert json.loads(shown.stdout)["spent"] == 22.0  # read while it is served

    served.end_in_order()


def repeated(source: Path, times: int, to: Path) -> Path:
    """Write the rows of a CSV file several times, each time slightly moved."""
    header, *rows = source.read_text().splitlines()
    more = [
        f"{float(first) - number / 1000},{rest}"
        for number in range(times)
        for first, rest in (row.split(",", 1) for row in rows)
    ]
    to.write_text("\n".join([header, *more]) + "\n")
    return to


def spent(served: Served) -> float:
    """Return the number of queries charged."""
    shown = call("ledger", "show", served.state, "--json")
    return float(json.loads(shown.stdout)["spent"])


def test_a_file_that_is_longer_than_the_stream_spends_nothing(deploy: Deploy) -> None:
    """It is refused before its first block is sent; blocks already paid for are written."""
    served = deploy(RICH)
    folder = served.folder
    config = folder / "client-0.toml"
    config.write_text(config.read_text() + "block = 8\n")
    out = folder / "labels.csv"
    call("records", "add", folder / "registrar.toml", folder / "records.csv")
    long = repeated(folder / "client-0.csv", 5, folder / "long.csv")
    refused = call("ask", config, long, "--out", out, code=1)
    assert "budget (total) is exhausted: 110 queries requested, 100 left" in refused.output
    assert "Nothing was sent or spent. Ask for at most 100 new rows" in refused.output
    assert spent(served) == 0.0
    assert not out.exists()

    start = folder / "start.csv"
    start.write_text("".join(long.read_text().splitlines(keepends=True)[:17]))
    first = call("ask", config, start)
    assert spent(served) == 16.0
    refused = call("ask", config, long, "--out", out, code=1)
    assert "only the first 16 of 110 rows were labelled" in refused.output
    assert "94 queries requested, 84 left" in refused.output
    assert out.read_text() == first.stdout
    assert spent(served) == 16.0

    fits = folder / "fits.csv"
    fits.write_text("".join(long.read_text().splitlines(keepends=True)[:101]))
    whole = call("ask", config, fits)
    assert whole.stdout.startswith(first.stdout)
    assert call("ask", config, fits).stdout == whole.stdout  # at no cost, with no budget left
    assert spent(served) == 100.0


def test_paid_labels_are_written_if_others_exhaust_the_stream(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks before the refusal are written, and the exit code shows that some are missing."""
    served = deploy(RICH.model_copy(update={"queries": 12}))
    folder = served.folder
    config = folder / "client-0.toml"
    config.write_text(config.read_text() + "block = 5\n")
    call("records", "add", folder / "registrar.toml", folder / "records.csv")
    long = repeated(folder / "client-1.csv", 4, folder / "long.csv")
    monkeypatch.setattr(asking, "_refusal", lambda *_: None)  # as if others asked just afterwards
    out = folder / "labels.csv"
    cut = call("ask", config, long, "--out", out, code=1)
    assert "only the first 10 of 24 rows were labelled" in cut.output
    assert len(out.read_text().splitlines()) == 11
    assert spent(served) == 10.0


def test_deploy_prediction_writes_no_more_queries_than_are_answered(tmp_path: Path) -> None:
    """All queries of `deploy prediction` can be labelled, together or one at a time."""
    for number, (apart, each) in enumerate((((), [3, 2]), (("--apart",), [5, 5]))):
        folder = tmp_path / str(number)
        command = ("deploy", "prediction", "wine", "--clients", 2, "--queries", 5, *apart)
        call(*command, "--out", folder)
        files = [folder / f"client-{which}.csv" for which in range(2)]
        assert [len(file.read_text().splitlines()) - 1 for file in files] == each


def test_only_administrators_change_records_and_only_one_server_has_them(deploy: Deploy) -> None:
    """A client that claims to be an administrator is refused, and so is a second server."""
    served = deploy(RICH)
    config = served.folder / "registrar.toml"
    config.write_text(config.read_text().replace("registrar.key", "client-0.key"))
    records = served.folder / "records.csv"
    wrong = call("records", "add", served.folder / "client-0.toml", records, code=2)
    assert "does not support `veilring records`; its role administrator does" in wrong.output
    refused = call("records", "add", config, records, code=1)
    assert "NotOffered" in refused.output
    assert "or you may not use it" in refused.output
    with pytest.raises(ScenarioError, match="is locked"):
        asyncio.run(serve(load_config(served.folder / "server.toml")))


def test_a_server_warns_of_a_doubtful_delta(deploy: Deploy) -> None:
    """For a δ large enough to reveal rows, the server logs a warning that names the key."""
    said = deploy(RICH.model_copy(update={"delta": 0.5})).log.read_text()
    assert "protocol.delta is 0.5, the probability with which a row may be revealed" in said


EMBEDDED = """
classes = ["sport", "trade"]
dimensions = 3
origin = [0.5, 0.0, 0.0]
[protocol]
tau = 0.8
"""


def embeddings(path: Path, **changed: ArrayLike) -> Path:
    """Write a file of embeddings."""
    features = np.array([[1.0, 0.0, 0.1], [0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    labels = {"y": [0, 1, 1], "class_names": ["sport", "trade"]}
    given: dict[str, Any] = {"X": features, **labels, "ids": ["a", "b", "c"], **changed}
    np.savez(path, **given)
    return path


def test_embeddings_are_read_as_they_are_and_from_a_public_origin(tmp_path: Path) -> None:
    """Classes are found by name or number, and directions are measured from the origin."""
    (tmp_path / "terms.toml").write_text(EMBEDDED)
    terms = PredictionTerms.load(tmp_path / "terms.toml")
    path = embeddings(tmp_path / "some.npz")
    records = read_records(path, terms, "id")
    assert records.ids == ("a", "b", "c")
    assert records.labels.tolist() == [0, 1, 1]
    other = ["art", "trade", "sport"]  # in another order, and one that no row has
    ordered = embeddings(tmp_path / "ordered.npz", y=[2, 1, 1], class_names=other)
    assert read_records(ordered, terms, "id").labels.tolist() == [0, 1, 1]
    numbered = tmp_path / "numbered.npz"
    np.savez(numbered, X=np.eye(3), y=[1, 0, 1], ids=[7, 8, 9])
    assert read_records(numbered, terms, "id").labels.tolist() == [1, 0, 1]
    assert read_records(numbered, terms, "id").ids == ("7", "8", "9")
    unit = np.array([[1.0, 0.0, 0.1], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    unit[0] /= np.linalg.norm(unit[0])
    expected = quantise(unit - np.array([0.5, 0.0, 0.0]))
    np.testing.assert_allclose(read_queries(path, terms), expected, atol=1)
    np.testing.assert_array_equal(records.directions, read_queries(path, terms))


def test_a_file_of_embeddings_without_rows_is_refused(tmp_path: Path) -> None:
    """A file without rows is refused both as records and as queries."""
    (tmp_path / "terms.toml").write_text(EMBEDDED)
    terms = PredictionTerms.load(tmp_path / "terms.toml")
    path = tmp_path / "none.npz"
    np.savez(path, X=np.zeros((0, 3)), y=np.zeros(0, np.int64), ids=np.zeros(0, np.str_))
    with pytest.raises(InputError, match=r"none\.npz has no rows"):
        read_records(path, terms, "id")
    with pytest.raises(InputError, match=r"none\.npz has no rows"):
        read_queries(path, terms)


def priced(path: Path, price: float) -> ServerRules:
    """Return the rules of terms with a paid origin."""
    path.write_text(f"origin_price = {price}\n{EMBEDDED}")
    return PredictionTerms.load(path).rules


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_released_origin_is_deducted_from_the_budget(tmp_path: Path, share: float) -> None:
    """Origin and answers together cost what the terms promise, at the same epsilon."""
    path = tmp_path / "terms.toml"
    whole = priced(path, 0.0).budget
    rules = priced(path, share * whole)
    assert (1 - share) * whole * (1 - 1e-12) < rules.budget < (1 - share) * whole * (1 + 1e-12)
    together = GaussianDP(sqrt(2 * (rules.budget + share * whole)))
    assert together.epsilon(rules.system.delta) <= rules.system.epsilon * (1 + 1e-12)
    schema = PredictionTerms.load(path).schema_digest
    with open_state(rules, tmp_path / "state.db", schema, new=True) as state:
        state.add(read_records(embeddings(tmp_path / "some.npz"), PredictionTerms.load(path), "id"))
        left = state._ledger.records.remaining()  # noqa: SLF001  (no public method returns it)
        assert set(left.tolist()) == {int(budget_units(rules.budget, field="budget"))}


@pytest.mark.parametrize("share", [1.0, 2.0, -0.1])
def test_an_origin_that_costs_all_of_the_budget_is_refused(tmp_path: Path, share: float) -> None:
    """Nothing would be left for answers; a price cannot be negative either."""
    whole = priced(tmp_path / "terms.toml", 0.0).budget
    with pytest.raises(ScenarioError, match=r"origin_price is .*; allowed: .*at least 0"):
        priced(tmp_path / "terms.toml", share * whole)


def test_the_price_of_a_released_mean_is_that_of_the_terms() -> None:
    """In zCDP it is 1 / sigma squared, rounded up to units of a ledger."""
    rows = np.random.default_rng(0).standard_normal((100, 3))
    released = private_mean(rows, 20.0, np.random.default_rng(1))
    assert 1 / 400 <= released.price <= 1 / 400 + 1e-11


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": ["a", "b"]}, "ids"),
        ({"ids": ["a", "b", "b"]}, "an id occurs twice"),
        ({"y": [0, 1, 2]}, "each of the 3 classes"),
        ({"class_names": ["sport", "art"]}, "row 2 is 'art'; allowed: one of sport, trade"),
        ({"X": np.zeros((3, 3))}, "to have a direction"),
        ({"X": np.ones((3, 4))}, r"\(rows, 3\)"),
        ({"X": np.array([[None] * 3] * 3)}, "arrays of numbers and texts"),
    ],
)
def test_invalid_files_of_embeddings_are_refused(
    tmp_path: Path, changed: dict[str, ArrayLike], message: str
) -> None:
    """The error names the mistake, and nothing is unpickled."""
    (tmp_path / "terms.toml").write_text(EMBEDDED)
    terms = PredictionTerms.load(tmp_path / "terms.toml")
    with pytest.raises(InputError, match=message):
        read_records(embeddings(tmp_path / "some.npz", **changed), terms, "id")


def test_files_that_are_damaged_or_lack_an_array_are_named(tmp_path: Path) -> None:
    """Truncated files and files without ids are refused as records, without a crash."""
    (tmp_path / "terms.toml").write_text(EMBEDDED)
    terms = PredictionTerms.load(tmp_path / "terms.toml")
    path = embeddings(tmp_path / "some.npz")
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"some\.npz"):
            read_records(path, terms, "id")
    np.savez(path, X=np.ones((3, 3)), y=np.zeros(3, np.int64))
    with pytest.raises(InputError, match=r"some\.npz lacks the array ids"):
        read_records(path, terms, "id")
    np.savez(path, X=np.ones((3, 3)), ids=["a", "b", "c"])
    with pytest.raises(InputError, match=r"some\.npz lacks the array y"):
        read_records(path, terms, "id")
    np.savez(path, X=np.ones((3, 3)), y=[0, 1, 2], ids=["a", "b", "c"])
    with pytest.raises(InputError, match=r"y must hold class numbers from 0 to 1"):
        read_records(path, terms, "id")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give either dimensions or features"),
        ('dimensions = 3\nfeatures = [{ name = "x" }]', "give either dimensions or features"),
        ("dimensions = 3\norigin = [1.0]", "the origin has 1 numbers"),
        ("dimensions = 3\norigin_price = 0.01", "a price needs an origin"),
        ('dimensions = 3\n[protocol]\nkernel = "rbf"\nwidth = 1e13', "protocol.width is 1000"),
        ("dimensions = 3\n[protocol]\nsigma2 = 1e-300", "protocol.sigma2 is 1e-300"),
        ("dimensions = 3\n[protocol]\nepsilon = 0.0", "protocol.epsilon is 0.0"),
        ("dimensions = 3\n[protocol]\nqueries = 3", "protocol.queries is 3; .* from 4 to"),
        ("dimensions = 3\n[protocol]\ntau = 2.0", "protocol.tau is 2.0"),
        ("dimensions = 3", r"tau = \"auto\" needs the queries, .*; give a number from 0 to 1"),
        ('dimensions = 3\n[protocol]\nclients = "alone"', "protocol.clients is 'alone'"),
        ('dimensions = 3\n[protocol]\nqueriers = "apart"', "this key was renamed to clients"),
        (
            "dimensions = 3\n[prediction]\ntau = 0.5",
            "prediction: .* renamed to protocol, with name = .ind-knn",
        ),
        ("dimensions = 3\n[protocol]\nquery = 3", r"no such key; .*did you mean queries\?"),
    ],
)
def test_invalid_terms_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the key, the value and the allowed values."""
    path = tmp_path / "terms.toml"
    path.write_text(f'classes = ["a", "b"]\n{text}')
    with pytest.raises(ScenarioError, match=message):
        PredictionTerms.load(path)


TEXTS = 80
# About 28 rows vote for the right class and none for the other, and the difference of their noise
# deviates by 0.8: that any of the answers below is wrong has a chance below 1e-200.
CERTAIN = ("--epsilon", 500, "--queries", 100, "--tau", 0.9, "--sigma2", 0.1)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model that separates texts with many a from texts with many b."""
    return install_stand_in(tmp_path, monkeypatch)


def write_texts(path: Path, count: int, *, labelled: bool = True) -> list[str]:
    """Write alternating texts of two kinds, each with an id, and return their labels."""
    kinds = ["as" if number % 2 else "bs" for number in range(count)]
    rows = [[f"n{at}", kind[0] * (5 + at % 7), kind] for at, kind in enumerate(kinds)]
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = ["who", "text", "kind"] if labelled else ["who", "text"]
        csv.writer(file).writerows(row[: len(columns)] for row in [columns, *rows])
    return kinds


@pytest.mark.slow
def test_texts_are_embedded_deployed_served_and_asked(model: Path, tmp_path: Path) -> None:
    """Each command reads the output of the previous one, from texts to labels of new texts."""
    write_texts(tmp_path / "texts.csv", TEXTS)
    folder = tmp_path / "predict"
    call("embed", tmp_path / "texts.csv", "--model", model, "--out", tmp_path / "texts.npz")
    assert (
        "public rows"
        in call("tune", tmp_path / "texts.npz", "--protocol", "ind-knn", "--queries", 20).stdout
    )
    options = (*CERTAIN, "--port", reserve_ports(), "--out", folder)
    said = call("deploy", "prediction", tmp_path / "texts.npz", *options).stdout
    for line in (f"add {folder}/registrar.toml {folder}/records.npz", f"{folder}/client-0.npz"):
        assert line in said
    assert (
        "public rows"
        in call(
            "tune",
            folder / "records.npz",
            "--protocol",
            "ind-knn",
            "--terms",
            folder / "terms.toml",
        ).stdout
    )
    truth = read_vectors(folder / "client-0.npz", "file")
    assert truth.labels is not None
    assert truth.class_names == ("as", "bs")

    served = Served(folder)
    served.serve()
    try:
        administrator, client = folder / "registrar.toml", folder / "client-0.toml"
        assert (
            "60 records were added"
            in call("records", "add", administrator, folder / "records.npz").stdout
        )
        answered = call("ask", client, folder / "client-0.npz").stdout.split()[1:]
        assert answered == np.array(truth.class_names)[truth.labels].tolist()

        write_texts(tmp_path / "more.csv", 4)
        more = ("embed", tmp_path / "more.csv", "--model", model, "--key", "who")
        call(*more, "--out", tmp_path / "more.npz")
        assert (
            "4 records were added"
            in call("records", "add", administrator, tmp_path / "more.npz").stdout
        )
        assert "1 records were forgotten" in call("records", "forget", administrator, "n3").stdout

        labels = write_texts(tmp_path / "new.csv", 6, labelled=False)
        new = ("embed", tmp_path / "new.csv", "--model", model, "--unlabelled")
        call(*new, "--out", tmp_path / "new.npz")
        assert call("ask", client, tmp_path / "new.npz").stdout.split()[1:] == labels
    finally:
        served.kill()
