"""Reports of a collection, summed elsewhere: equal results on one process and a cluster."""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection, store_of
from tests.protocols.ldp.collecting import accepted, batches, keep, make_task

from veilring.deployment.survey import SurveyTerms
from veilring.errors import InputError
from veilring.protocols.ldp.algorithm.bayes import learn
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


def on_dask(scheduler: str) -> Spread:
    """Return a function that sums pieces on a Dask cluster."""
    return partial(each_done, engine=Engine("dask", dask_address=scheduler))


@pytest.mark.parametrize("at_once", [123, 700, None])
def test_two_workers_count_like_one_process(
    files: tuple[Path, ...], at_once: int | None, scheduler: str
) -> None:
    """Tally and classifier are equal to the last bit, for any division of the files.

    This holds on a Dask cluster, and on processes of this machine.
    """
    expected = tally_parquet(TASK, files)
    here = partial(each_done, engine=Engine("local", workers=2))
    for spread in (on_dask(scheduler), here):
        found = tally_parquet(TASK, files, spread, at_once=at_once)
        assert found.clients == 2000
        assert found.counts == expected.counts
        assert all(map(np.array_equal, found.sums, expected.sums))
        assert repr(learn(TASK.survey, found)) == repr(learn(TASK.survey, expected))


def test_a_cluster_refuses_the_same_reports_as_one_process(
    files: tuple[Path, ...], scheduler: str
) -> None:
    """A report for another task is an input error, on any worker."""
    with pytest.raises(InputError, match="for a task other than"):
        tally_parquet(make_task(epsilon=2.0), files, on_dask(scheduler), at_once=500)


def test_exported_reports_give_the_estimates_of_the_store(tmp_path: Path) -> None:
    """`veilring tally` of exported files prints the same as `veilring estimate`."""
    collection = Collection(tmp_path / "survey", reports=10)
    task = SurveyTerms.load(collection.folder / "terms.toml").task
    rng = np.random.default_rng(1)
    people = ClientPool(rng.uniform(0.0, 8.0, size=(3000, 4)), rng.integers(3, size=3000))
    with closing(store_of(collection.folder)) as store:
        keep(store, accepted(task, list(people.answer(task, rng))))

    export = ("export", "collector.toml", "--out", "reports")
    assert collection.call(*export).stdout.startswith("1 file")
    (file,) = (collection.folder / "reports").glob("*.parquet")
    tally, options = ("tally", "terms.toml", file), ("--json", "--save")
    asked = collection.call("estimate", "collector.toml", *options, "one.json").stdout
    found = collection.call(*tally, *options, "other.json").stdout
    # Files say of no report whose it is.
    of_file, of_store = json.loads(found), json.loads(asked)
    assert of_file.pop("members") == {}
    assert of_store.pop("members") == {"ada": 3000}
    assert of_file == of_store
    assert of_file["reports"] == 3000
    one, other = (load_classifier(collection.folder / f"{name}.json") for name in ("one", "other"))
    assert repr(one) == repr(other)
    collection.call(*export, code=2)
    assert "engine" in collection.call(*tally, "--workers", "2", code=2).output
