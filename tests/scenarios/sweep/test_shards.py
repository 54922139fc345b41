"""Shards of a sweep: their merge, the mistakes that it refuses, and the files of clusters."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.cli.invoking import done, refused
from tests.deployment.commands import SECONDS

from veilring.errors import InputError
from veilring.scenarios.sweep import Engine, Plan, merge_shards, parse_grid, run_sweep

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
# Columns that are whole numbers in one shard and words or fractions in another.
GRID: Final = ("parties.count=3..5", 'protocol.rounds=1,"auto"')
SMALL: Final = ("data.queries=5", "run.leakage_trials=0")
PLAN: Final = Plan("wine", parse_grid(GRID), 2, SMALL)
IN_PROCESS: Final = Engine(workers=1)
SHARDS: Final = 5  # of 12 cells, so that shards have different lengths


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return the journals of all shards of a sweep, which no test may change."""
    out = tmp_path_factory.mktemp("shards") / "out.parquet"
    parts = [run_sweep(PLAN, out, engine=IN_PROCESS, shard=f"{n}/{SHARDS}") for n in range(SHARDS)]
    assert [len(part.cells) for part in parts] == [3, 3, 2, 2, 2]
    return tuple(part.files.journal for part in parts)


def _changed(path: Path, to: Path, **header: object) -> Path:
    """Copy a journal with other values in its first line."""
    first, *others = path.read_text().splitlines(keepends=True)
    to.write_text(json.dumps(json.loads(first) | header) + "\n" + "".join(others))
    return to


def test_merged_shards_are_the_bytes_of_one_machine(
    shards: tuple[Path, ...], tmp_path: Path
) -> None:
    """The results are equal to the bit, from any order of the shards, and the journals remain."""
    whole, merged = tmp_path / "whole.parquet", tmp_path / "merged.parquet"
    run_sweep(PLAN, whole, engine=IN_PROCESS)
    text = done("merge", *reversed(shards), "--out", merged)
    assert text == f"12 runs; results written to {merged}\n"
    assert merged.read_bytes() == whole.read_bytes()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        f"{name}{end}" for name in ("whole", "merged") for end in (".parquet", ".timing.parquet")
    }
    assert all(path.exists() for path in shards)


def test_a_repeated_shard_runs_nothing_again(shards: tuple[Path, ...]) -> None:
    """A pod that is started again ends at once, and changes no byte of its journal."""
    out, before = shards[0].with_name("out.parquet"), shards[0].read_bytes()
    again = run_sweep(PLAN, out, engine=IN_PROCESS, shard=f"0/{SHARDS}")
    assert (again.kept, shards[0].read_bytes()) == (3, before)


@pytest.mark.parametrize("shard", ["12/12", "1/13", "-1/2", "0/0", "1", "a/b", "0/4/2"])
def test_an_impossible_shard_is_refused(shard: str, tmp_path: Path) -> None:
    """The error has the allowed shards, and no file is made."""
    with pytest.raises(InputError, match=re.escape("0/N to N-1/N, with N from 1 to 12")):
        run_sweep(PLAN, tmp_path / "out.parquet", engine=IN_PROCESS, shard=shard)
    assert list(tmp_path.iterdir()) == []


def _cases(shards: tuple[Path, ...], folder: Path) -> Iterator[tuple[list[Path], str]]:
    """Yield shards that cannot be merged, and a part of the error."""
    first, second, *_ = shards
    copy = Path(shutil.copy(first, folder / "copy.journal"))
    yield [*shards[:2], shards[3]], "these shards are missing: 2/5, 4/5"
    yield [*shards, copy], f"shard 0/5 ({copy}) is given twice, also as {first}"
    other = _changed(second, folder / "other.journal", trials=3)
    yield (
        [first, other],
        f"shard 1/5 ({other}) and shard 0/5 ({first}) are of two sweeps: its trials is 3, not 2",
    )
    halved = _changed(second, folder / "halved.journal", shard="1/2")
    yield (
        [first, halved],
        f"shard 1/2 ({halved}) and shard 0/5 ({first}) divide the sweep differently",
    )
    many = _changed(second, folder / "many.journal", shard="1/999999999")
    yield [many], "missing: 0/999999999, 2/999999999, "
    older = _changed(second, folder / "older.journal", veilring="0.0.9")
    yield [first, older], f'{older} is from another version: its veilring is "0.0.9", not '
    short = folder / "short.journal"
    short.write_bytes(second.read_bytes()[:-1])
    yield (
        [first, short, *shards[2:]],
        f"shard 1/5 ({short}) is incomplete: 2 of its 3 runs are finished; repeat its command",
    )
    whole = _changed(second, folder / "whole.journal", shard=None)
    yield [first, whole], f"{whole} belongs to a whole sweep"
    for name, header in (
        ("none", {"grid": 3}),
        ("last", {"shard": "1/1"}),
        ("zero", {"shard": "0/0"}),
    ):
        odd = _changed(first, folder / f"{name}.journal", **{"shard": "0/1"} | header)
        yield [odd], f"line 1 of {odd} was not written by a sweep"
    nonsense = folder / "nonsense.journal"
    nonsense.write_bytes(b"PAR1")
    yield [nonsense], f"line 1 of {nonsense} was not written by a sweep"
    yield [folder / "missing"], f"shard is {folder / 'missing'}; allowed: a journal"


def test_shards_that_do_not_fit_are_refused_and_named(
    shards: tuple[Path, ...], tmp_path: Path
) -> None:
    """Missing, doubled, unfinished and foreign shards end the merge before it writes anything."""
    out = tmp_path / "merged.parquet"
    for given, said in _cases(shards, tmp_path):
        with pytest.raises(InputError) as caught:
            merge_shards(given, out)
        assert said in str(caught.value)
        assert not out.exists()


def test_an_existing_result_is_not_overwritten(shards: tuple[Path, ...], tmp_path: Path) -> None:
    """The command refuses the path, as a sweep does."""
    out = tmp_path / "merged.parquet"
    out.touch()
    assert "nothing is overwritten" in refused("merge", *shards, "--out", out)
    assert out.read_bytes() == b""


# A program that stands for `veilring`, and prints its arguments, each between NUL bytes.
RECORDER: Final = "#!/bin/sh\nprintf '%s\\0' \"$@\"\n"
SHARED: Final = 8
"""The number of shards in the files for clusters."""


def _job() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "sweep-job.yaml").read_text(encoding="utf-8"))
    return job


def _of_kubernetes() -> list[str]:
    (container,) = _job()["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container["args"]]


COMMANDS: Final = {
    "kubernetes": (_of_kubernetes, "JOB_COMPLETION_INDEX", {}),
    "slurm": (
        lambda: ["bash", str(DEPLOY / "sweep.slurm")],
        "SLURM_ARRAY_TASK_ID",
        {"SLURM_CPUS_PER_TASK": "4"},
    ),
}


def _calls(cluster: str, folder: Path) -> list[list[str]]:
    """Return the arguments of `veilring` in each job, as a cluster's shell makes them."""
    make, index, more = COMMANDS[cluster]
    program = folder / "bin" / "veilring"
    program.parent.mkdir()
    program.write_text(RECORDER)
    program.chmod(0o755)
    environment = {**os.environ, **more, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    calls = []
    for number in range(SHARED):
        ran = subprocess.run(
            make(),
            env={**environment, index: str(number)},
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        calls.append(ran.stdout.split("\0")[:-1])
    return calls


@pytest.mark.parametrize("cluster", COMMANDS)
def test_the_jobs_of_a_cluster_are_all_shards(cluster: str, tmp_path: Path) -> None:
    """The jobs differ only in the shard, and their file has a job for each shard."""
    calls = _calls(cluster, tmp_path)
    places = {call.index("--shard") + 1 for call in calls}
    assert len(places) == 1
    (place,) = places
    assert [call[place] for call in calls] == [f"{n}/{SHARED}" for n in range(SHARED)]
    assert len({tuple(call[:place] + call[place + 1 :]) for call in calls}) == 1
    if cluster == "kubernetes":
        spec = _job()["spec"]
        assert (spec["completionMode"], spec["completions"]) == ("Indexed", SHARED)
    else:
        assert f"#SBATCH --array=0-{SHARED - 1}\n" in (DEPLOY / "sweep.slurm").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", COMMANDS)
def test_the_commands_of_a_cluster_give_one_sweep(cluster: str, tmp_path: Path) -> None:
    """The commands of all jobs, run with their indices, merge into the sweep of one machine."""
    out, whole = tmp_path / "rounds.parquet", tmp_path / "whole.parquet"
    calls = [[*call, "--set", "run.leakage_trials=0"] for call in _calls(cluster, tmp_path)]
    for call in calls:
        call[call.index("--trials") + 1] = "2"  # of 10: a shard has one run or two
        call[call.index("--out") + 1] = str(out)
        call[call.index("--workers") + 1] = "1"
        done(*call)
    done("merge", *sorted(tmp_path.glob(f"rounds.parquet.*-of-{SHARED}.journal")), "--out", out)
    single = calls[0]
    place = single.index("--shard")
    single[single.index("--out") + 1] = str(whole)
    done(*single[:place], *single[place + 2 :])
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
def test_kubectl_knows_each_key_of_the_job(tmp_path: Path) -> None:
    """Kubectl returns all keys of the file: it drops a key that is not one of a Job."""
    command = f"kubectl set image --local -f {DEPLOY / 'sweep-job.yaml'} shard=other -o json"
    ran = subprocess.run(
        shlex.split(command),
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    job = _job()
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert _kept(job, json.loads(ran.stdout))


def _kept(given: Any, found: Any) -> bool:
    """Return whether everything given is found: a result may have more, such as defaults."""
    if isinstance(given, dict):
        return all(key in found and _kept(value, found[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(found) and all(map(_kept, given, found))
    return bool(given == found)
