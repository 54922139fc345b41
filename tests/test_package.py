"""The package exports few names, imports them lazily, and runs any system with any seed."""

import asyncio
import hashlib
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import PCG64DXSM, Generator, SeedSequence
from tests.cli.invoking import python
from tests.roles import add_up

import veilring as vr
from veilring.measures import Measures, measure
from veilring.nodes.cluster import RUNTIMES, RuntimeName
from veilring.randomness import Streams

# Without their types, to try what type checkers refuse.
RUN: Any = vr.run
OWNER: Any = vr.DataOwner


def _wine() -> tuple[list[vr.Table], vr.Table]:
    train, test = vr.load("wine").split(test_share=0.25, seed=1)
    return train.partition(4, seed=1), test


def test_exported_names_are_few_and_importable() -> None:
    """The package exports at most 64 names, and each can be imported."""
    assert len(vr.__all__) <= 64
    for name in vr.__all__:
        assert getattr(vr, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = vr.nothing_like_it  # type: ignore[attr-defined]  # as a typo


def test_importing_loads_nothing() -> None:
    """Neither NumPy nor any module of the package is loaded before use."""
    code = "import sys, veilring; print(*(m for m in sys.modules if m[:9] in seen))"
    assert not python("-c", f"seen = ('numpy', 'veilring.'); {code}").stdout.strip()


def test_a_run_equals_a_scenario_with_the_same_seed() -> None:
    """Split, partition and all draws are those of `veilring run` with the same seed."""
    train, test = vr.load("wine").split(test_share=0.25, seed=7)
    run = vr.run(vr.PrivateKNN(), train.partition(8, seed=7), test, seed=7)
    scenario = vr.load_scenario("wine", ["run.leakage_trials=0"])
    assert run.transcript == vr.run_scenario(scenario, runtime="memory", seed=7).transcript


async def test_run_works_inside_a_running_loop() -> None:
    """In a notebook `run` waits, and `run_async` lets the loop continue."""
    parts, test = _wine()
    here = vr.run(vr.PrivateKNN(), parts, test, runtime="simulated", seed=1)
    there = await vr.run_async(vr.PrivateKNN(), parts, test, runtime="memory", seed=1)
    assert here.transcript == there.transcript


@pytest.mark.parametrize("runtime", ["memory", "tls", "simulated"])
async def test_cancelling_waits_for_the_end_of_a_run(runtime: RuntimeName) -> None:
    """If cancelled, `run_async` ends when the run has ended at all parties."""
    begun, begins, ended = asyncio.Event(), list[str](), list[str]()
    loop = asyncio.get_running_loop()

    async def for_ever(party: vr.Party, _own: int) -> None:
        begins.append(party.me)
        if len(begins) == len(party.parties):
            loop.call_soon_threadsafe(begun.set)
        try:
            for _ in itertools.count():
                await asyncio.sleep(0)
        finally:
            ended.append(party.me)

    waits = asyncio.create_task(vr.run_async(for_ever, [1, 2], runtime=runtime))
    await begun.wait()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert sorted(ended) == ["party-0", "party-1"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_custom_role_runs(runtime: RuntimeName) -> None:
    """A coroutine over a party needs no system."""
    run = vr.run(add_up, [1, 2, 3], runtime=runtime, seed=1)
    assert run.result == 6
    assert run.cost.messages == 6


def test_queries_are_in_the_units_of_the_parts() -> None:
    """An array is scaled by the parts' public ranges, like a table, and a frame's by their names.

    The order of a frame's columns changes nothing; without a schema, a frame is refused.
    """
    parts, test = _wine()
    frame = pl.DataFrame(np.array(test.X), schema=list(test.features.names))
    asked = (test, np.array(test.X), frame.select(sorted(frame.columns)))
    table, array, named = (vr.run(vr.PrivateKNN(), parts, each, seed=1) for each in asked)
    for run in (array, named):
        assert (run.labels, run.transcript) == (table.labels, table.transcript)
        assert run.accuracy is None
    scaled = [vr.Rows(np.zeros((2, 2)), np.array([0, 1])) for _ in range(3)]
    with pytest.raises(vr.InputError, match="the parts have no columns"):
        vr.run(vr.RankSearch(k=1), scaled, pl.DataFrame({"a": [0.0], "b": [0.0]}))


def test_a_run_shows_itself() -> None:
    """Its text and its notebook table both name the system, its guarantee and its cost."""
    parts, test = _wine()
    run = vr.run(vr.DataOwner(epsilon=2.0), parts, test, seed=1)
    for shown in (str(run), run._repr_html_()):
        assert "data-owner" in shown
        assert "ε = 2" in shown
        assert f"{run.cost.messages} messages" in shown
    right = f"SystemRun('data-owner': {len(test)} labels, {run.accuracy:.1%} right"
    assert repr(run).startswith(right)


@pytest.mark.parametrize(
    "system",
    [*(vr.find_system(name)() for name in vr.system_names()), vr.RankSearch(reveal="label")],
    ids=repr,
)
def test_a_run_has_the_measures_of_its_labels_and_scores(system: vr.System) -> None:
    """Scores come with the answer over the network, and the label has the greatest."""
    parts, test = _wine()
    few = test.take(np.arange(12))
    run = vr.run(system, parts, few, seed=1)
    labels = np.array([few.features.classes.index(label) for label in run.labels])
    assert run.measures is not None
    assert run.measures == measure(few.y, labels, few.features.classes, run.scores)
    assert run.accuracy == (few.y == labels).mean()
    assert (run.scores is not None) == system.reveals_scores == (run.measures.auc is not None)
    if run.scores is not None:
        np.testing.assert_array_equal(run.scores.argmax(axis=1), labels)


def test_a_class_that_no_party_has_is_measured() -> None:
    """Queries may have a class beyond those of scaled rows; no label can be right for it."""
    rows = [vr.Rows(np.array([[0.1], [0.9]]), np.array([0, 1])) for _ in range(3)]
    features = vr.Features(("x",), vr.Ranges((0.0,), (1.0,)), ("a", "b", "c"))
    table = vr.Table("few", np.array([[0.1], [0.9], [0.5]]), np.array([0, 1, 2]), features)
    run = vr.run(vr.RankSearch(k=1), rows, table, seed=1)
    assert isinstance(run.measures, Measures)
    assert run.measures.recalls[2] is not None
    assert run.measures.recalls[2].value == 0.0


def _ages(folder: Path, pattern: str = "", by: str = "") -> vr.Table:
    """Load a table of ages in which a pattern is replaced."""
    lines = ["age,sex,label", *(f"{20 + n},{'fm'[n % 2]},{'xy'[n % 2]}" for n in range(10)), ""]
    path = folder / "ages.csv"
    path.write_text(re.sub(pattern, by, "\n".join(lines)))
    return vr.load(str(path))


@pytest.mark.parametrize(
    ("pattern", "by", "says"),
    [
        (
            "20",
            "19",
            "the range of 'age' is 20 to 29 in the first part and 19 to 29 in part 3; load",
        ),
        (
            "age",
            "years",
            "a column is 'age' in the first part and 'years' in part 3; load all parts",
        ),
        ("m,y", "d,y", "among the values of 'sex', 'm' is only in the first part; load all parts"),
        (
            ",y",
            ",z",
            "among the classes, 'y' is only in the first part; load all parts with the same",
        ),
        ("2", "two", "'age' has numbers in the first part and text in part 3; load all parts"),
        (",(sex|f|m),", ",", "the number of features is 3 in the first part and 1 in part 3; load"),
    ],
)
def test_the_first_difference_between_schemas_is_named(
    tmp_path: Path, pattern: str, by: str, says: str
) -> None:
    """The error names the column, both values and the remedy."""
    same = _ages(tmp_path)
    with pytest.raises(vr.InputError) as refused:
        vr.run(vr.RankSearch(k=3), [same, same, _ages(tmp_path, pattern, by)], same)
    assert str(refused.value).startswith(f"the parts have different schemas: {says}")


def test_parts_with_the_same_public_schema_run(tmp_path: Path) -> None:
    """Tables with other extremes have one schema once they are loaded with a public one."""
    schema, rows = tmp_path / "schema.toml", tmp_path / "rows.csv"
    schema.write_text('classes = ["x", "y"]\n[[features]]\nname = "age"\nlow = 0\nhigh = 100\n')
    parts = list[vr.Table]()
    for age in (17, 18, 19):
        rows.write_text("age,label\n" + "".join(f"{age * n},{'xy'[n % 2]}\n" for n in range(5)))
        parts.append(vr.load(str(rows), schema=schema))
    assert parts[0].features.ranges == parts[2].features.ranges
    assert len(vr.run(vr.RankSearch(k=3), parts, parts[0], seed=1).labels) == 5
    with pytest.raises(vr.InputError, match=r"source is 'wine'; .* because a schema is given"):
        vr.load("wine", schema=schema)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            # Without an error of the type checker, the comment that permits it is unused.
            lambda _p, _t: vr.run(add_up, [1, 2], runtime="memry"),  # type: ignore[call-overload]  # see above
            "runtime is 'memry'; allowed: memory, tls, processes",
        ),
        (lambda p, _t: RUN(vr.PrivateKNN(), p, None), "queries are missing"),
        (lambda p, t: RUN(vr.PrivateKNN(), p, t, k=3), "k is not for a system"),
        (lambda p, t: RUN(vr.PrivateKNN(), p, t, trace=True), "`veilring trace DIR`"),
        (lambda p, t: RUN(add_up, p, t), "queries are for systems"),
        (lambda p, t: RUN(vr.PrivateKNN(), [*p, vr.load("iris")], t), "have different schemas"),
        (lambda p, t: RUN(vr.PrivateKNN(), p, t.X[0]), "queries has the shape (13,)"),
        (lambda p, t: RUN(vr.PrivateKNN(k=1000), p, t), "k is 1000"),
        (lambda _p, _t: vr.PrivateKNN(k=0), "k is 0; allowed: a whole number of at least 1"),
        (lambda _p, _t: OWNER(epsilon="1"), "epsilon is '1'"),
        (lambda _p, _t: OWNER(sigma=1), "sigma: there is no such key"),
    ],
    ids=range(11),
)
def test_invalid_arguments_are_refused(call: Callable[..., object], says: str) -> None:
    """The error names the argument, its value and the allowed values."""
    with pytest.raises(vr.InputError) as refused:
        call(*_wine())
    assert says in str(refused.value)


# The child prints its draws from each generator of the parent, and then the parent does.
_FORK = """
import os
from veilring.randomness import Streams

streams = Streams({seed})
generators = [streams.generator("x", number) for number in range(2)]
[generator.bytes(3) for generator in generators]
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(generator.bytes(16).hex() for generator in generators), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no system call forks there")
def test_a_forked_process_has_its_own_secrets() -> None:
    """A secret stream continues with another key in the child; a seeded one is equal."""
    for seed, different in ((None, 4), (1, 2)):
        assert len(set(python("-c", _FORK.format(seed=seed)).stdout.split())) == different


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1, 2**128 - 1, 2**128, 2**200 + 7])
def test_a_stream_is_spawned_from_the_seed_by_its_name(seed: int) -> None:
    """A stream is a child of NumPy's seed sequence, with the hash of its name as the spawn key."""
    name = b"\0\0\0\x04link" + b"\0\0\0\x0212"
    key = np.frombuffer(hashlib.sha256(name).digest(), dtype="<u4").tolist()
    child = Generator(PCG64DXSM(SeedSequence(seed, spawn_key=key)))
    stream = Streams(seed).generator("link", 12)
    assert stream.bytes(64) == child.bytes(64)
    assert stream.spawn(2)[1].bytes(64) == child.spawn(2)[1].bytes(64)
