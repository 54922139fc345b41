"""The report on a collection, and the sums of its reports elsewhere.

Its names, its units, its JSON form and its minimum; equal results on one process and a cluster.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.deployment.collection import Collection, collecting, collector_of, store_of
from tests.deployment.commands import call
from tests.protocols.ldp.collecting import accepted, batches, keep, make_task

from veilring.cli.surveys import show_estimates
from veilring.deployment import load_config_of
from veilring.deployment.surveys.collector import (
    CollectorConfig,
    Estimates,
    estimate_from,
    estimate_stored,
)
from veilring.deployment.surveys.terms import MINIMUM_REPORTS, SurveyTerms
from veilring.errors import InputError, ScenarioError
from veilring.protocols.ldp.algorithm.bayes import learn
from veilring.protocols.ldp.algorithm.survey import Tally, answer, tally_reports
from veilring.protocols.ldp.parquet import Spread, tally_parquet, write_parquet
from veilring.protocols.ldp.roles import ClientPool
from veilring.protocols.ldp.saved import load_classifier
from veilring.scenarios.sweep import Engine
from veilring.scenarios.sweep.dask_backend import local_cluster
from veilring.scenarios.sweep.engine import each_done

CLIENTS = 40_000
TERMS = """
features = [{ name = "age", low = 0, high = 100 }]
[protocol]
kind = "means"
epsilon = 20
minimum = 1
"""
GAUSSIAN = "classes = ['no', 'yes']" + TERMS.replace("means", "gaussian-bayes")


def terms_of(tmp_path: Path, text: str) -> SurveyTerms:
    """Read the terms."""
    path = tmp_path / "terms.toml"
    path.write_text(text)
    return SurveyTerms.load(path)


def estimated(terms: SurveyTerms, question: int | None = None) -> Estimates:
    """Estimate from people aged 75, a quarter of whom answer yes, all to one question."""
    rng = np.random.default_rng(3)
    rows, labels = np.full((CLIENTS, 1), 75.0), np.repeat([0, 0, 0, 1], CLIENTS // 4)
    survey = terms.task.survey
    reports = list(answer(survey, rows, labels, rng).reports)
    if question is not None:
        reports = [each if n == question else each[:0] for n, each in enumerate(reports)]
    return estimate_from(terms, tally_reports(survey, reports), confidence=1 - 1e-9)


def test_a_mean_is_in_the_unit_of_its_column(tmp_path: Path) -> None:
    """Its interval contains the mean age, under the heading of a mean.

    An empty tally is refused for any minimum.
    """
    terms = terms_of(tmp_path, TERMS)
    with pytest.raises(ValueError, match="0 of at least 1 reports so far"):
        estimate_from(terms, Tally.empty(terms.task.survey))
    (line,) = estimated(terms).lines
    assert (line.of, line.value, line.within, line.clients) == ("age", "mean", "", CLIENTS)
    assert line.low < 75 < line.high


def test_a_mean_within_a_class_is_named_correctly(tmp_path: Path) -> None:
    """A mean of 1/2 on the reporting scale, in a quarter of the clients, is reported as 1/8."""
    lines = {
        (line.value, line.within): line for line in estimated(terms_of(tmp_path, GAUSSIAN)).lines
    }
    assert len(lines) == 6
    for (value, within), line in lines.items():
        share = 0.25 if "yes" in (value, within) else 0.75
        power = {"mean * share": 1, "mean square * share": 2}.get(value, 0)
        # Among 13,000 that drew a question, a share is off by 0.05 once in 1e20 (Hoeffding).
        assert line.low - 0.05 < share * 0.5**power < line.high + 0.05
        assert (line.of == "age") == (power > 0)


def test_json_contains_no_infinity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The interval ends of a question without answers are null."""
    terms = terms_of(tmp_path, GAUSSIAN)
    show_estimates(estimated(terms, question=0), json=True)
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    ends = {line["value"]: (line["low"], line["high"]) for line in document["estimates"]}
    assert ends["mean * share"] == ends["mean square * share"] == (None, None)
    assert None not in ends["yes"]
    show_estimates(estimated(terms, question=0), json=False)
    assert "-inf to inf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("members", "shown"),
    [(20, ", p18 19, p19 20"), (21, "21 members, 231 in total, at most 21 by one (p20)")],
)
def test_many_members_are_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], members: int, shown: str
) -> None:
    """Up to 20 members are listed; more are shown by their number, their total and the most."""
    found = estimated(terms_of(tmp_path, TERMS))
    stored = {f"p{number}": number + 1 for number in range(members)}
    show_estimates(replace(found, members=stored), json=False)
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "by member" in each)
    assert line.endswith(shown)


SITES, EACH = ("site-a", "site-b", "site-c", "site-d"), 50
REPORTS = len(SITES) * EACH


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """Return a collection with 50 stored reports of each of four sites."""
    made = Collection(tmp_path / "survey", reports=REPORTS, survey_clients=4)
    task = SurveyTerms.load(made.folder / "terms.toml").task
    rng = np.random.default_rng(1)
    with closing(store_of(made.folder)) as store:
        for site in SITES:
            pool = ClientPool(rng.uniform(0.0, 8.0, size=(EACH, 4)), rng.integers(3, size=EACH))
            keep(store, accepted(task, list(pool.answer(task, rng))), member=site)
    return made


def set_minimum(collection: Collection, minimum: int) -> None:
    """Change the minimum in the terms of a collection."""
    path = collection.folder / "terms.toml"
    path.write_text(re.sub("minimum = .*", f"minimum = {minimum}", path.read_text()))


def test_exported_reports_give_the_estimates_of_the_store(collection: Collection) -> None:
    """`veilring tally` of exported files prints and saves the same as `veilring estimate`.

    After the minimum was lowered, the same store is estimated, and exported files are added up.
    """
    pytest.importorskip("polars", reason="polars is part of the extra `parquet`")
    set_minimum(collection, MINIMUM_REPORTS)
    export = ("export", "collector.toml", "--out", "reports")
    assert collection.call(*export).stdout.startswith("1 file")
    collection.call(*export, code=2)
    (file,) = (collection.folder / "reports").glob("*.parquet")
    estimate, tally = ("estimate", "collector.toml"), ("tally", "terms.toml", file)
    for command in (estimate, tally):
        early = collection.call(*command, code=2)
        assert "200 of at least 1,000 reports so far (`minimum` in the terms" in early.output
    set_minimum(collection, REPORTS)
    found = list[dict[str, object]]()
    for command in (estimate, tally):
        saved = f"{command[0]}.json"
        found.append(json.loads(collection.call(*command, "--json", "--save", saved).stdout))
    # Files say of no report whose it is.
    members = [document.pop("members") for document in found]
    assert members == [dict.fromkeys(SITES, EACH), {}]
    assert found[0] == found[1]
    assert (found[0]["reports"], found[0]["below_minimum"]) == (REPORTS, False)
    one, other = (
        load_classifier(collection.folder / f"{name}.json") for name in ("estimate", "tally")
    )
    assert repr(one) == repr(other)
    assert "engine" in collection.call(*tally, "--workers", "2", code=2).output


def test_estimates_without_a_member_may_fall_below_the_minimum(collection: Collection) -> None:
    """They are marked, and no model is made of them; the minimum applies to all reports."""
    command, without = ("estimate", "collector.toml"), ("--without", "site-d")
    shown = collection.call(*command, *without)
    assert "150 reports are left, fewer than the minimum of 200" in shown.output
    document = json.loads(collection.call(*command, *without, "--json").stdout)
    assert (document["reports"], document["below_minimum"]) == (150, True)
    assert "reports are left" not in collection.call(*command).output
    refused = collection.call(*command, *without, "--save", "model.json", code=2)
    assert "150 of at least 200 reports" in refused.output
    assert not (collection.folder / "model.json").exists()
    everybody = (word for site in SITES for word in ("--without", site))
    nobody = collection.call(*command, *everybody, code=2)
    assert "no reports are left; leave out fewer members" in nobody.output
    set_minimum(collection, REPORTS + 1)
    early = collection.call(*command, *without, code=2)
    assert "200 of at least 201 reports so far" in early.output


WORDS = """
features = [{ name = "answer" }]
[protocol]
name = "ldp-bayes"
kind = "words"
epsilon = 6
longest = 3
minimum = 100
"""


def test_frequent_words_are_estimated_from_the_store(tmp_path: Path) -> None:
    """A word of most clients is listed with its interval; other stores and files are refused."""
    folder = Collection(tmp_path / "survey", reports=1).folder
    terms = terms_of(folder, WORDS)
    rows = folder / "rows.csv"
    rows.write_text("answer\n" + "maybe\n" * 300 + "".join(f"{n:03}\n" for n in range(100)))
    pool = terms.read_clients(rows)
    assert pool.rows[0, 0] == int.from_bytes(b"may", "big")
    with closing(store_of(folder)) as store:
        made = list(pool.answer(terms.task, np.random.default_rng(1)))
        keep(store, accepted(terms.task, made), member="client")
        assert store.recount().clients == 400
    found = estimate_stored(load_config_of(folder / "collector.toml", CollectorConfig, "test"))
    (line,) = found.lines
    assert (line.of, line.value, line.within) == ("answer", "may", "")
    assert line.low < 0.75 < line.high
    config = load_config_of(folder / "collector.toml", CollectorConfig, "test")
    with pytest.raises(InputError, match="from one store"):
        estimate_stored(config, stores=["other.db"])
    with pytest.raises(InputError, match="needs its reports"):
        estimate_from(terms, found.tally)
    rows.write_text("answer,number\nyes,1\n,2\n")
    with pytest.raises(InputError, match="is empty; fill it in"):
        terms.read_clients(rows)
    for wrong, why in (('"means"', "longest is for"), ('"words"\nbins = 1', "bins")):
        with pytest.raises(ScenarioError, match=why):
            terms_of(tmp_path, WORDS.replace('"words"', wrong))


def test_the_stores_of_several_collectors_give_one_estimate(collection: Collection) -> None:
    """The estimates equal those of one collector that has all reports.

    A report in two stores counts once, and the output has the number of such reports. A store of
    another task is refused by its name.
    """
    estimate = ("estimate", "collector.toml", "--json")
    expected = json.loads(collection.call(*estimate).stdout)
    collection.call("state", "backup", "collector.db", "north.db")
    collection.configure("collector", 'state = "south.db"')
    collection.call("state", "new", "collector.toml")
    assert json.loads(collection.call(*estimate, "north.db").stdout) == expected
    doubled = json.loads(collection.call(*estimate, "north.db", "collector.db").stdout)
    assert doubled == expected | {"repeated": REPORTS}
    shown = collection.call("estimate", "collector.toml", "north.db", "collector.db")
    assert f"in several stores, and counted once: {REPORTS} reports" in shown.output
    other = collection.folder / "other"
    call("deploy", "survey", "iris", "--epsilon", 2, "--reports", REPORTS, "--out", other)
    store_of(other).close()  # which from then on belongs to the task
    refused = collection.call("estimate", "collector.toml", other / "collector.db", code=2)
    assert f"{other / 'collector.db'} is for the task " in refused.output


@pytest.mark.parametrize(
    ("limits", "minimum", "warning"),
    [
        ("reports_max = 50", 200, ""),
        ("reports_max = 50", 201, "only 200 reports of all members together, but estimates need"),
        ("reports_max = 50\nreports_max_of = { survey-client-0 = 51 }", 201, ""),
        ("", 10**9, "no reports_max is set"),
        ("reports_max_of = { survey-client-0 = 1 }", 10**9, "no reports_max is set"),
    ],
)
async def test_a_collector_warns_of_a_minimum_out_of_reach(
    collection: Collection,
    caplog: pytest.LogCaptureFixture,
    limits: str,
    minimum: int,
    warning: str,
) -> None:
    """It adds up the limits of all members except itself, and starts nevertheless."""
    set_minimum(collection, minimum)
    collection.configure("collector", limits)
    with caplog.at_level(logging.WARNING, "veilring.collector"):
        async with collecting(collector_of(collection.folder)):
            pass
    assert len(caplog.messages) == bool(warning)
    assert warning in caplog.text


def test_a_trial_survey_can_reach_its_minimum(tmp_path: Path) -> None:
    """Without a choice, it is at most the number of reports."""
    for reports, minimum in ((REPORTS, REPORTS), (5000, MINIMUM_REPORTS)):
        folder = Collection(tmp_path / f"survey-{reports}", reports=reports).folder
        assert SurveyTerms.load(folder / "terms.toml").protocol.minimum == minimum
    options = ("--reports", REPORTS, "--out", tmp_path / "other")
    call("deploy", "survey", "iris", *options, "--minimum", 7)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_cluster_refuses_the_same_reports_as_one_process(
    files: tuple[Path, ...], scheduler: str
) -> None:
    """A report for another task is an input error, on any worker."""
    with pytest.raises(InputError, match="for a task other than"):
        tally_parquet(make_task(epsilon=2.0), files, on_dask(scheduler), at_once=500)
