"""A deployed collection: `serve`, `submit` and `estimate` as processes, killed at any time."""

import json

import pytest
from tests.deployment.collection import Collect, kept

from veilring.protocols.ldp.algorithm.bayes import DiscreteBayes
from veilring.protocols.ldp.saved import load_classifier

CLIENTS = 3000


def test_a_collection_from_its_files_to_its_estimates(collect: Collect) -> None:
    """Each row is reported once for any number of attempts, and estimates work meanwhile."""
    collection = collect(CLIENTS, 2)
    early = collection.ended("estimate", "collector.toml", code=2)
    assert "0 of at least 1,000 reports so far" in early
    for number, options in ((0, ()), (1, ("--single",)), (0, ())):
        assert kept(collection.submitted(number, *options)) == CLIENTS // 2
    confidence = ("--confidence", "0.9999999")
    shown = collection.ended("estimate", "collector.toml", "--json", "--recount", *confidence)
    document = json.loads(shown)
    assert document["reports"] == CLIENTS
    shares = [line for line in document["estimates"] if line["of"] == "class"]
    assert [line["value"] for line in shares] == ["setosa", "versicolor", "virginica"]
    # Three intervals each miss with probability 1e-7; and the frequencies in 3,000 rows drawn from
    # thirds are within 0.053 of them, except with probability 1e-7 each (Hoeffding).
    for line in shares:
        assert line["low"] - 0.053 <= 1 / 3 <= line["high"] + 0.053
    save = ("estimate", "collector.toml", "--save", "model.json")
    assert "setosa" in collection.ended(*save)
    model = load_classifier(collection.folder / "model.json").model
    assert isinstance(model, DiscreteBayes)
    assert len(model.class_counts) == 3
    assert sum(each.clients for each in model.evidence) == CLIENTS
    collection.ended(*save, code=2)  # nothing is overwritten
    collection.end_in_order("collector")
    assert collection.require_sound() == CLIENTS


@pytest.mark.slow
def test_a_spent_budget_a_changed_task_and_a_pinned_one(collect: Collect) -> None:
    """Clients without budget skip a second task, and a pinned task is the only one accepted."""
    collection = collect(1000)
    assert kept(collection.submitted(0)) == 1000
    collection.kill()

    collection.edit("terms.toml", "[protocol]", "[protocol]\ncloses = 2999-01-01T00:00:00Z")
    refused = collection.ended("serve", "collector.toml", code=2)
    assert "collector.db is for the task" in refused
    assert "restore the terms and the version of veilring" in refused.replace("\n", " ")
    for path in collection.folder.glob("collector.db*"):
        path.rename(path.with_name(path.name.replace("collector", "first")))
    collection.ended("state", "new", "collector.toml")
    collection.collect()
    said = "1,000 rows were not reported: the budgets of their clients are exhausted"
    assert said in collection.submitted(0, code=1)
    assert collection.stored() == {}

    collection.configure("survey-client-0", f'task = "{"0" * 64}"')
    assert ", not 0000" in collection.submitted(0, code=2)
