"""How accurate releases are, beside their targets: by the very steps that parties run.

Among n peers of whom c may collude, n - c shares make the noise that the account is of, and there
are n of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from veilring.data.sources import load
from veilring.data.table import Rows, Table, TrainTestSplit, scale_to_unit, split
from veilring.errors import InputError
from veilring.protocols.release.algorithm.noise import Trust
from veilring.protocols.release.algorithm.rule import Rule
from veilring.protocols.release.algorithm.steps import ReleaseParameters, simulate_release

DELTA: Final = 1e-5
PEERS, COLLUDING = 8, 3
TEST_SHARE: Final = 0.25
# Tables with more rows get half of the splits: their accuracy varies less.
LARGE: Final = 4000
# Rings of an abalone up to which it is young, and up to which it is adult: thirds of the table.
_YOUNG, _ADULT = 8, 10

TRUST: Final[Mapping[str, Trust]] = MappingProxyType(
    {"peers": Trust(PEERS, COLLUDING), "owner": Trust(1, 0)}
)


class Targets(NamedTuple):
    """The accuracies in per cent that releases at epsilon = 1 shall reach.

    Attributes:
        peers: With `DELTA`.
        owner: The same, of one owner.
        pure_peers: Without delta.
        pure_owner: The same, of one owner.
    """

    peers: float
    owner: float
    pure_peers: float
    pure_owner: float


TARGETS: Final[Mapping[str, Targets]] = MappingProxyType(
    {
        "wine": Targets(87.2, 89.4, 88.5, 91.4),
        "breast-cancer": Targets(93.0, 93.3, 90.0, 90.5),
        "digits": Targets(86.0, 88.3, 66.0, 69.0),
        "iris": Targets(91.7, 92.0, 91.2, 92.7),
        "australian": Targets(85.2, 85.2, 85.0, 85.7),
        "car": Targets(80.5, 81.5, 80.5, 81.5),
        "mushroom": Targets(97.6, 97.9, 92.9, 93.2),
        "banana": Targets(88.1, 88.0, 88.5, 88.2),
        "banknote": Targets(95.6, 97.0, 95.1, 97.0),
        "abalone": Targets(61.9, 62.1, 54.7, 54.5),
        "glass": Targets(40.0, 43.0, 39.0, 39.0),
        "agnews_minilm": Targets(84.4, 84.5, 71.0, 74.0),
    }
)
"""By table; abalone in three classes of age, and news by its embeddings."""
_SHIPPED: Final = ("wine", "breast-cancer", "digits", "iris")


@dataclass(frozen=True, slots=True)
class Trial:
    """The measurements of each table.

    Attributes:
        epsilon: The ε of each release.
        splits: The number of splits of each table; half of it with more than `LARGE` rows.
        statistic: The statistic, as in `Release`.
        seed: The seed of splits and noise.
    """

    epsilon: float = 1.0
    splits: int = 20
    statistic: Any = "auto"
    seed: int = 0


class Found(NamedTuple):
    """The accuracy of one kind of release.

    Attributes:
        method: The statistic, and where its directions are looked at from.
        mean: Over the splits, in per cent.
        error: The standard error of the mean.
    """

    method: str
    mean: float
    error: float


def at_hand(data: Path | None) -> list[str]:
    """Return the names of the tables that can be read."""
    return [name for name in TARGETS if name in _SHIPPED or (data and _file(name, data).exists())]


def _file(name: str, data: Path) -> Path:
    return data / f"{name}.{'npz' if name == 'agnews_minilm' else 'csv'}"


def read_table(name: str, data: Path | None) -> Table:
    """Return a table, scaled by its own ranges.

    Raises:
        InputError: If it is unknown, or its file cannot be read.
    """
    if name not in TARGETS:
        raise InputError("--table", name, ", ".join(TARGETS))
    if name in _SHIPPED:
        return scale_to_unit(load(name))
    if data is None:
        raise InputError.because(f"{name} is read from a file; give its folder by --data")
    table = load(str(_file(name, data)))
    return scale_to_unit(_ages(table) if name == "abalone" else table)


def _ages(table: Table) -> Table:
    rings = np.array([int(each) for each in table.features.classes])[table.y]
    ages = np.searchsorted((_YOUNG, _ADULT), rings).astype(np.int64)
    return replace(
        table, y=ages, features=replace(table.features, classes=("young", "adult", "old"))
    )


def deal_rows(table: Table, parties: int) -> list[Rows]:
    """Return the rows of a table in turn to each party."""
    return [Rows(table.X[n::parties], table.y[n::parties]) for n in range(parties)]


def measure_table(name: str, data: Path | None, trial: Trial) -> list[Found]:
    """Return the accuracy of each kind of release, in the order of `Targets`.

    Args:
        name: The table.
        data: The folder of files.
        trial: What is measured.

    Raises:
        InputError: As `read_table` and `Rule.plan` do.
    """
    table = read_table(name, data)
    splits = trial.splits if len(table) <= LARGE else max(2, trial.splits // 2)
    parts = [
        split(table, TEST_SHARE, np.random.default_rng([trial.seed, number]))
        for number in range(splits)
    ]
    return [
        _measure(parts, delta, trust, trial) for delta in (DELTA, 0.0) for trust in TRUST.values()
    ]


def _measure(parts: list[TrainTestSplit], delta: float, trust: Trust, trial: Trial) -> Found:
    features = parts[0].train.features
    plan = Rule(features, len(parts[0].train), trial.epsilon, delta, trust).plan(trial.statistic)
    parameters, scores = ReleaseParameters(features, plan), []
    for number, part in enumerate(parts):
        rngs = np.random.default_rng([trial.seed, number, 1]).spawn(trust.parties)
        model = simulate_release(deal_rows(part.train, trust.parties), parameters, rngs).model
        scores.append(100 * np.mean(model.predict(part.held_out.X) == part.held_out.y))
    about = "" if plan.reference == "middle" else f" {plan.reference}"
    error = float(np.std(scores, ddof=1) / sqrt(len(scores)))
    return Found(f"{plan.method}{about}", float(np.mean(scores)), error)


_COLUMN: Final = 42


def header(epsilon: float) -> str:
    """Return the heading of the lines."""
    kinds = [f"{trust}, {promise}" for promise in (f"δ = {DELTA:g}", "pure") for trust in TRUST]
    return f"{f'ε = {epsilon:g}':<14}" + "".join(f"{kind:<{_COLUMN}}" for kind in kinds)


def format_line(name: str, found: list[Found], epsilon: float) -> str:
    """Return a line of the table: accuracy, standard error, target and statistic of each kind."""
    cells = []
    for each, target in zip(found, TARGETS[name], strict=True):
        aim = f" (target {target:g})" if epsilon == 1 else ""
        cells.append(f"{each.mean:.1f} ± {each.error:.1f}{aim} {each.method}")
    return f"{name:<14}" + "".join(f"{cell:<{_COLUMN}}" for cell in cells).rstrip()
