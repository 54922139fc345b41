"""Reports of a collection, summed elsewhere: equal results on one process and a cluster."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection
from tests.deployment.commands import call
from tests.protocols.ldp.collecting import accepted, batches, keep, make_task

from veilring.deployment import load_config_of
from veilring.deployment.collector import CollectorConfig, open_configured_store
from veilring.deployment.survey import SurveyTerms
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes import learn
from veilring.protocols.ldp.algorithm.survey import Tally
from veilring.protocols.ldp.parquet import Spread, tally_parquet, write_parquet
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.saved import load_classifier
from veilring.scenarios.sweep import Engine
from veilring.scenarios.sweep.dask_backend import local_cluster
from veilring.scenarios.sweep.engine import each_done

pytestmark = pytest.mark.slow

TASK = make_task()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Write reports to one file."""
    made = ((batch.question, batch.reports) for batch in batches(TASK, 2000))
    return write_parquet(TASK, made, tmp_path_factory.mktemp("tally") / "reports")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Return the address of a Dask cluster of two workers."""
    with local_cluster(2) as address:
        yield address


def same(one: Tally, other: Tally) -> bool:
    """Return whether two tallies are equal."""
    return one.counts == other.counts and all(map(np.array_equal, one.sums, other.sums))


def on_dask(scheduler: str) -> Spread:
    """Return a function that sums pieces on a Dask cluster."""
    return partial(each_done, engine=Engine("dask", dask_address=scheduler))


@pytest.mark.parametrize("at_once", [123, 700, None])
def test_two_dask_workers_count_like_one_process(
    files: tuple[Path, ...], at_once: int | None, scheduler: str
) -> None:
    """Tally and classifier are equal to the last bit, for any division of the files."""
    expected = tally_parquet(TASK, files)
    found = tally_parquet(TASK, files, on_dask(scheduler), at_once=at_once)
    assert same(found, expected)
    assert found.clients == 2000
    assert repr(learn(TASK.survey, found)) == repr(learn(TASK.survey, expected))


def test_processes_of_this_machine_count_alike(files: tuple[Path, ...]) -> None:
    """Two processes and many pieces give the same tally."""
    found = tally_parquet(
        TASK, files, partial(each_done, engine=Engine("local", workers=2)), at_once=300
    )
    assert same(found, tally_parquet(TASK, files))


def test_a_cluster_refuses_the_same_reports_as_one_process(
    files: tuple[Path, ...], scheduler: str
) -> None:
    """A report for another task is an input error, on any worker."""
    with pytest.raises(InputError, match="for a task other than"):
        tally_parquet(make_task(epsilon=2.0), files, on_dask(scheduler), at_once=500)


def test_exported_reports_give_the_estimates_of_the_store(tmp_path: Path) -> None:
    """`veilring tally` of exported files prints the same as `veilring estimate`."""
    folder = Collection(tmp_path / "survey", reports=10).folder
    config = load_config_of(folder / "collector.toml", CollectorConfig, "this")
    task = SurveyTerms.load(Path(config.terms)).task
    rng = np.random.default_rng(1)
    people = ClientPool(rng.uniform(0.0, 8.0, size=(3000, 4)), rng.integers(3, size=3000))
    store = open_configured_store(config, task)
    keep(store, accepted(task, list(people.answer(task, rng))))
    store.close()

    collector, terms = str(folder / "collector.toml"), str(config.terms)
    assert call("export", collector, "--out", folder / "reports").stdout.startswith("1 file")
    (file,) = (folder / "reports").glob("*.parquet")
    asked = call("estimate", collector, "--json", "--save", folder / "one.json").stdout
    found = call("tally", terms, file, "--json", "--save", folder / "other.json").stdout
    # Files say of no report whose it is.
    of_file, of_store = json.loads(found), json.loads(asked)
    assert of_file.pop("members") == {}
    assert of_store.pop("members") == {"ada": 3000}
    assert of_file == of_store
    assert json.loads(found)["reports"] == 3000
    assert repr(load_classifier(folder / "one.json")) == repr(
        load_classifier(folder / "other.json")
    )
    call("export", collector, "--out", folder / "reports", code=2)
    alone = call("tally", terms, file, "--workers", "2", code=2)
    assert "engine" in alone.output
