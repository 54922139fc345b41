"""A data owner: a batch beside scikit-learn's kNN, and a hostile one."""

import asyncio
import itertools
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from papers.answers import hostile_batch

from benchmarks.measurement import Bound, Measurement, pairs, ratios, timed
from benchmarks.samples import clustered_balls
from veilring.data.table import Rows
from veilring.nodes.service import Threads
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius.owner import Owner, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.transport.messages import encode

ROWS = 1372  # as many as the banknote table
PER_BALL = 15
SLOWER_MAX = 5.0
"""The most times as long as without privacy that labels may take."""
HOSTILE_FEATURES, HOSTILE_SHARE = 50, 0.7


def measure_owner(*, quick: bool) -> list[Measurement]:
    """Label 800 queries, 200 if it has to be quick, and a hostile thousand.

    The owner checks the request, finds the cliques, counts, draws, charges its ledger on the disk
    and encodes the answer. scikit-learn fits and predicts, or only predicts. Their times are CPU
    time. And a batch made to have no end: how long, and how long another analyst waits meanwhile.
    """
    queries, repetitions = (200, 3) if quick else (800, 7)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_ledger(Path(folder, "ledger"), Budgets(total=1e5), new=True) as ledger,
    ):
        found = _beside_scikit(ledger, queries, repetitions)
        found += asyncio.run(_hostile(ledger, 1 if quick else 3))
    return found


def _beside_scikit(ledger: Ledger, queries: int, repetitions: int) -> list[Measurement]:
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415  (one measurement of two needs it)

    points, radii, rows = clustered_balls(
        queries, ROWS, 4, per_ball=PER_BALL, rng=np.random.default_rng(0)
    )
    threads = Threads(1, "labels")
    owner, numbers = (
        Owner(rows, DataOwner().bind(Facts(1, 4, 2)), ledger, threads),
        itertools.count(),
    )
    rng = np.random.default_rng(1)

    def ours() -> None:
        asked = ask_within(points, radii, 1.0, name=str(next(numbers)))
        encode(bytes(16), owner.answer_once("ann", asked, rng))

    def reference() -> None:
        KNeighborsClassifier(PER_BALL).fit(rows.features, rows.labels).predict(points)

    fitted = KNeighborsClassifier(PER_BALL).fit(rows.features, rows.labels)
    mine, whole, predicting = (
        timed(act, time.process_time) for act in (ours, reference, partial(fitted.predict, points))
    )
    name = f"{queries} queries labelled by an owner, CPU time beside that of kNN"
    return [
        ratios(name, pairs(mine, whole, repetitions), Bound("at most", SLOWER_MAX)),
        ratios(f"{name}, fitted before", pairs(mine, predicting, repetitions)),
    ]


async def _hostile(ledger: Ledger, repetitions: int) -> list[Measurement]:
    """Time a batch on which clique search has no end, and another analyst's query meanwhile."""
    rng = np.random.default_rng(2)
    rows = Rows(rng.random((ROWS, HOSTILE_FEATURES)), rng.integers(2, size=ROWS))
    points, radii = hostile_batch(1000, HOSTILE_FEATURES, HOSTILE_SHARE, rng)
    whole, waits = [], []
    async with Threads(2, "labels") as offload:
        owner = Owner(rows, DataOwner().bind(Facts(1, HOSTILE_FEATURES, 2)), ledger, offload)
        for number in range(repetitions):
            hostile = ask_within(points, radii, 1.0, name=f"hostile {number}")
            single = ask_within(points[:1], radii[:1], 1.0, name=f"single {number}")

            started = time.perf_counter()
            working = asyncio.create_task(offload(partial(owner.answer_once, "eve", hostile, rng)))
            await asyncio.sleep(0.2)
            asked = time.perf_counter()
            await offload(partial(owner.answer_once, "ann", single, np.random.default_rng(number)))
            waits.append(time.perf_counter() - asked)
            await working
            whole.append(time.perf_counter() - started)
    return [
        Measurement("a hostile batch of 1,000 dense balls", "s", tuple(whole)),
        Measurement("another analyst's query meanwhile", "s", tuple(waits)),
    ]
