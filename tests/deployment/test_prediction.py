"""A deployed prediction server: served, asked, changed and killed by commands."""

import csv
import json
from math import sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from benchmarks.ports import reserve_ports
from numpy.typing import ArrayLike
from tests.data.standin import install_stand_in
from tests.deployment.commands import Deploy, Deployment, call
from tests.deployment.prediction_crashes import written_by_server

from veilring.data.npz import read_vectors
from veilring.deployment import prediction as asking
from veilring.deployment.prediction import (
    PredictionClientConfig,
    PredictionTerms,
    read_queries,
    read_records,
)
from veilring.errors import InputError, ScenarioError
from veilring.privacy.accounting import GaussianDP
from veilring.privacy.budgets import budget_units
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.prediction.messages import ServerRules
from veilring.protocols.prediction.state import open_state

# With this much to spend an answer is the label of the nearest rows.
RICH = ("--clients=2", "--epsilon=200", "--tau=0.5", "--sigma2=0.1")
ADD = ("records", "add", "registrar.toml")
FORGET = ("records", "forget", "registrar.toml")
ASK = ("ask", "client-0.toml")


def rich(deploy: Deploy, *options: str) -> Deployment:
    """Serve with two clients and much to spend."""
    served = deploy("prediction", *RICH, *options)
    served.serve("server")
    return served


def some_rows(served: Deployment, name: str, source: str, stop: int) -> str:
    """Write the first rows of a file to another one, and return its name."""
    lines = (served.folder / source).read_text().splitlines(keepends=True)
    (served.folder / name).write_text("".join(lines[: stop + 1]))
    return name


def repeated(served: Deployment, source: str, times: int) -> str:
    """Write the rows of a file several times, each time slightly moved; return the new name."""
    header, *rows = (served.folder / source).read_text().splitlines()
    more = [
        f"{float(first) - number / 1000},{rest}"
        for number in range(times)
        for first, rest in (row.split(",", 1) for row in rows)
    ]
    (served.folder / "long.csv").write_text("\n".join([header, *more, ""]))
    return "long.csv"


def test_a_deployed_server_runs_from_its_files_to_the_end_of_its_stream(deploy: Deploy) -> None:
    """It labels, repeats answers after a kill, forgets records, and ends after T queries.

    A client that claims to be an administrator is refused, and so is a second server.
    """
    served = rich(deploy, "--queries=100")
    assert "server is ready: 0 records, 0 queries answered" in served.log("server")
    added = served.call(*ADD, "records.csv")
    assert "134 records were added" in added.stdout
    first = served.call(*ASK, "client-0.csv").stdout
    labels = [row["label"] for row in csv.DictReader(first.splitlines())]
    with (served.folder / "client-0.csv").open() as file:
        truth = [row["label"] for row in csv.DictReader(file)]
    # The noise is a fiftieth of what classes lead by, so these are the labels of a kernel vote.
    assert sum(a == b for a, b in zip(labels, truth, strict=True)) >= 18

    served.kill()
    served.serve("server")
    assert "server is ready: 134 records, 22 queries answered" in served.log("server")
    assert served.call(*ASK, "client-0.csv").stdout == first
    assert "0 records" in served.call(*ADD, "records.csv").stdout
    second = served.call("serve", "server.toml", code=2)
    assert "is locked" in second.stderr
    wrong = served.call("records", "add", "client-0.toml", "records.csv", code=2)
    assert "does not support `veilring records`; its role administrator does" in wrong.output
    served.edit("registrar.toml", "registrar.key", "client-0.key")
    refused = served.call(*ADD, "records.csv", code=1)
    assert "NotOffered" in refused.output
    assert "or you may not use it" in refused.output
    served.edit("registrar.toml", "client-0.key", "registrar.key")

    ids = "".join(f"record-{number}\n" for number in range(134))
    (served.folder / "ids.txt").write_text(ids)
    assert b"record-77" in written_by_server(served)
    gone = served.call(*FORGET, "--from", "ids.txt")
    assert "134 records were forgotten" in gone.stdout
    assert b"record-" not in written_by_server(served)
    unknown = served.call(*FORGET, "record-3", "nobody", code=2)
    assert "ids is 'nobody'; allowed: an id that was added before" in unknown.output

    refused = served.call("ask", "client-1.toml", repeated(served, "client-1.csv", 4), code=1)
    assert "budget (total) is exhausted: 88 queries requested, 78 left" in refused.output
    shown = served.call("ledger", "show", "server.db", "--json")
    assert json.loads(shown.stdout)["spent"] == 22.0  # read while it is served
    served.end_in_order()


def test_a_file_that_is_longer_than_the_stream_spends_nothing(deploy: Deploy) -> None:
    """It is refused before its first block is sent; blocks already paid for are written."""
    served = rich(deploy, "--queries=100")
    served.configure("client-0", "block = 8")
    served.call(*ADD, "records.csv")
    long, out = repeated(served, "client-0.csv", 5), served.folder / "labels.csv"
    refused = served.call(*ASK, long, "--out", out, code=1)
    assert "budget (total) is exhausted: 110 queries requested, 100 left" in refused.output
    assert "Nothing was sent or spent. Ask for at most 100 new rows" in refused.output
    assert served.totals("server").spent == 0.0
    assert not out.exists()

    first = served.call(*ASK, some_rows(served, "start.csv", long, 16)).stdout
    assert served.totals("server").spent == 16.0
    refused = served.call(*ASK, long, "--out", out, code=1)
    assert "only the first 16 of 110 rows were labelled" in refused.output
    assert "94 queries requested, 84 left" in refused.output
    assert out.read_text() == first
    assert served.totals("server").spent == 16.0

    fits = some_rows(served, "fits.csv", long, 100)
    whole = served.call(*ASK, fits).stdout
    assert whole.startswith(first)
    assert served.call(*ASK, fits).stdout == whole  # at no cost, with no budget left
    assert served.totals("server").spent == 100.0


def test_paid_labels_are_written_if_others_exhaust_the_stream(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks before the refusal are written, and the exit code shows that some are missing."""
    served = rich(deploy, "--queries=12")
    served.configure("client-0", "block = 5")
    served.call(*ADD, "records.csv")
    long = repeated(served, "client-1.csv", 4)
    monkeypatch.setattr(asking, "_refusal", lambda *_: None)  # as if others asked just afterwards
    cut = served.call(*ASK, long, "--out", "labels.csv", code=1)
    assert "only the first 10 of 24 rows were labelled" in cut.output
    assert len((served.folder / "labels.csv").read_text().splitlines()) == 11
    assert served.totals("server").spent == 10.0


def test_deploy_prediction_writes_no_more_queries_than_are_answered(tmp_path: Path) -> None:
    """All queries of `deploy prediction` can be labelled, together or one at a time."""
    for number, (apart, each) in enumerate((((), [3, 2]), (("--apart",), [5, 5]))):
        folder = tmp_path / str(number)
        command = ("deploy", "prediction", "wine", "--clients", 2, "--queries", 5, *apart)
        call(*command, "--out", folder)
        files = [folder / f"client-{which}.csv" for which in range(2)]
        assert [len(file.read_text().splitlines()) - 1 for file in files] == each


def test_a_server_warns_of_a_doubtful_delta(deploy: Deploy) -> None:
    """For a δ large enough to reveal rows, the server logs a warning that names the key."""
    said = rich(deploy, "--queries=100", "--set=protocol.delta=0.5").log("server")
    assert "protocol.delta is 0.5, the probability with which a row may be revealed" in said


EMBEDDED = """
classes = ["sport", "trade"]
dimensions = 3
origin = [0.5, 0.0, 0.0]
[protocol]
tau = 0.8
"""


@pytest.fixture
def embedded(tmp_path: Path) -> PredictionTerms:
    """Return terms of embeddings."""
    path = tmp_path / "embedded.toml"
    path.write_text(EMBEDDED)
    return PredictionTerms.load(path)


def embeddings(path: Path, **changed: ArrayLike) -> Path:
    """Write a file of embeddings."""
    features = np.array([[1.0, 0.0, 0.1], [0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    labels = {"y": [0, 1, 1], "class_names": ["sport", "trade"]}
    given: dict[str, Any] = {"X": features, **labels, "ids": ["a", "b", "c"], **changed}
    np.savez(path, **given)
    return path


CLIENT: Final = PredictionClientConfig(
    role="client", identity="a.key", roster="roster.toml", terms="terms.toml", ask="clinic"
)


def test_embeddings_are_read_as_they_are_and_from_a_public_origin(
    embedded: PredictionTerms, tmp_path: Path
) -> None:
    """Classes are found by name or number, and directions are measured from the origin."""
    terms = embedded
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
    queries, kept = read_queries(path, terms, CLIENT)
    np.testing.assert_allclose(queries, expected, atol=1)
    np.testing.assert_array_equal(records.directions, queries)
    assert kept == {}


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


NOTHING: Final[dict[str, ArrayLike]] = {
    "X": np.zeros((0, 3)),
    "y": np.zeros(0, np.int64),
    "ids": np.zeros(0, np.str_),
}
INVALID: Final[list[tuple[dict[str, ArrayLike], str]]] = [
    (NOTHING, r"some\.npz has no rows"),
    ({"ids": ["a", "b"]}, "ids"),
    ({"ids": ["a", "b", "b"]}, "an id occurs twice"),
    ({"y": [0, 1, 2]}, "each of the 3 classes"),
    ({"class_names": ["sport", "art"]}, "row 2 is 'art'; allowed: one of sport, trade"),
    ({"X": np.zeros((3, 3))}, "to have a direction"),
    ({"X": np.ones((3, 4))}, r"\(rows, 3\)"),
    ({"X": np.array([[None] * 3] * 3)}, "arrays of numbers and texts"),
]


@pytest.mark.parametrize(("changed", "message"), INVALID)
def test_invalid_files_of_embeddings_are_refused(
    embedded: PredictionTerms, tmp_path: Path, changed: dict[str, ArrayLike], message: str
) -> None:
    """The error names the mistake, and nothing is unpickled."""
    path = embeddings(tmp_path / "some.npz", **changed)
    with pytest.raises(InputError, match=message):
        read_records(path, embedded, "id")
    if changed is NOTHING:
        with pytest.raises(InputError, match=message):
            read_queries(path, embedded, CLIENT)


def test_files_that_are_damaged_or_lack_an_array_are_named(
    embedded: PredictionTerms, tmp_path: Path
) -> None:
    """Truncated files and files without ids are refused as records, without a crash."""
    path = embeddings(tmp_path / "some.npz")
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"some\.npz"):
            read_records(path, embedded, "id")
    rows, y, ids = {"X": np.ones((3, 3))}, {"y": [0, 1, 2]}, {"ids": ["a", "b", "c"]}
    for arrays, message in (
        (rows | y, r"some\.npz lacks the array ids"),
        (rows | ids, r"some\.npz lacks the array y"),
        (rows | y | ids, r"y must hold class numbers from 0 to 1"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=message):
            read_records(path, embedded, "id")


TEXTS = 80
# About 28 rows vote for the right class and none for the other, and the difference of their noise
# deviates by 0.8: that any of the answers below is wrong has a chance below 1e-200.
CERTAIN = ("--epsilon", 500, "--queries", 100, "--tau", 0.9, "--sigma2", 0.1)


def write_texts(path: Path, count: int, *, labelled: bool = True) -> list[str]:
    """Write alternating texts of two kinds, each with an id, and return their labels."""
    kinds = ["as" if number % 2 else "bs" for number in range(count)]
    rows = [[f"n{at}", kind[0] * (5 + at % 7), kind] for at, kind in enumerate(kinds)]
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = ["who", "text", "kind"] if labelled else ["who", "text"]
        csv.writer(file).writerows(row[: len(columns)] for row in [columns, *rows])
    return kinds


@pytest.mark.slow
def test_texts_are_embedded_deployed_served_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployed: list[Deployment]
) -> None:
    """Each command reads the output of the previous one, from texts to labels of new texts."""
    # It separates texts with many a from texts with many b.
    model = ("--model", install_stand_in(tmp_path, monkeypatch))
    files, served = Deployment(tmp_path), Deployment(tmp_path / "predict")
    deployed.append(served)
    write_texts(tmp_path / "texts.csv", TEXTS)
    files.call("embed", "texts.csv", *model, "--out", "texts.npz")
    tune = ("tune", "--protocol", "ind-knn", "--workers", 1)
    assert "public rows" in files.call(*tune, "texts.npz", "--queries", 20).stdout
    options = (*CERTAIN, "--port", reserve_ports(), "--out", served.folder)
    said = files.call("deploy", "prediction", "texts.npz", *options).stdout
    folder = served.folder
    for line in (f"add {folder}/registrar.toml {folder}/records.npz", f"{folder}/client-0.npz"):
        assert line in said
    assert "public rows" in served.call(*tune, "records.npz", "--terms", "terms.toml").stdout
    truth = read_vectors(folder / "client-0.npz", "file")
    assert truth.labels is not None
    assert truth.class_names == ("as", "bs")

    served.serve("server")
    assert "60 records were added" in served.call(*ADD, "records.npz").stdout
    answered = served.call(*ASK, "client-0.npz").stdout.split()[1:]
    assert answered == np.array(truth.class_names)[truth.labels].tolist()

    write_texts(folder / "more.csv", 4)
    served.call("embed", "more.csv", *model, "--key", "who", "--out", "more.npz")
    assert "4 records were added" in served.call(*ADD, "more.npz").stdout
    assert "1 records were forgotten" in served.call(*FORGET, "n3").stdout

    labels = write_texts(folder / "new.csv", 6, labelled=False)
    served.call("embed", "new.csv", *model, "--unlabelled", "--out", "new.npz")
    assert served.call(*ASK, "new.npz").stdout.split()[1:] == labels
