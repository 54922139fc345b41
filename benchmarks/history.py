"""The history of benchmark results: dated records, and the comparison of a run with the last one.

A record is one line of JSON. A run that leaves benchmarks out adds a record of the others, so the
last record of a measurement may be older than that of the next.

The last record of a measurement on this machine bounds it: a median is worse if it exceeds the
recorded median (a speed: falls below it) by more than the noise, which is

    max(3 · √2 · 1.25 · (max - min) / repetitions, 5 % of the median).

The first term is three standard errors of the difference of two medians. The standard error of the
median of n normal numbers is 1.25 σ/√n, and their range is about √n σ for 3 to 20 numbers. The
second term covers differences between runs that do not occur within one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmarks.measurement import Bound, Measurement
from veilring.errors import InputError

HISTORY: Final = Path(__file__).with_name("history.jsonl")
"""The records that are kept with the code."""
NOISE: Final = 3 * math.sqrt(2) * 1.25  # in ranges over repetitions: see above
_NOISE_SHARE_MIN: Final = 0.05  # of the median

Verdict = Literal["inside", "better", "worse", "one repetition", "another machine"]


class Kept(BaseModel):
    """A measurement in a record."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: str
    median: float
    min: float
    max: float
    repetitions: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.median <= self.max:
            raise ValueError("the median must be between min and max")
        return self

    @property
    def noise(self) -> float:
        """The difference that two medians may have by chance."""
        spread = NOISE * (self.max - self.min) / self.repetitions
        return max(spread, _NOISE_SHARE_MIN * abs(self.median))


class Record(BaseModel):
    """The results of one run.; `quick` has smaller sizes, and no machine is named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    taken: date
    version: str
    machine: str
    quick: bool
    results: Mapping[str, Kept]


@dataclass(frozen=True, slots=True)
class Change:
    """A measurement compared with its last record.

    Attributes:
        last: The measurement in the record, or None if no record has it.
        verdict: Whether the present median differs from the recorded one by more than the noise; or
            why the record cannot show it. None without a record.
        bound: The recorded median with the noise, unless the record cannot show a difference.
    """

    measurement: Measurement
    last: Kept | None = None
    taken: date | None = None
    verdict: Verdict | None = None
    bound: Bound | None = None

    @property
    def factor(self) -> float | None:
        """The present median divided by the recorded one; None where that is undefined."""
        return (
            self.measurement.median / self.last.median if self.last and self.last.median else None
        )


def read_history(path: Path) -> list[Record]:
    """Return the records of a file, oldest first.

    Raises:
        InputError: The file cannot be read, a line is no record, or records are out of order.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError("--history", str(path), "a file with benchmark records") from error
    records = list[Record]()
    for number, line in enumerate(lines, start=1):
        try:
            record = Record.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            reason = f"line {number} of {path} is not a record: {where}: {first['msg']}"
            raise InputError.because(reason, field="--history") from error
        if records and record.taken < records[-1].taken:
            reason = f"line {number} of {path} is older than the line before it; sort the lines"
            raise InputError.because(reason, field="--history")
        records.append(record)
    return records


def add_record(path: Path, record: Record) -> None:
    """Append a record to a file, which is made if it does not exist."""
    with path.open("a", encoding="utf-8") as file:
        file.write(record.model_dump_json() + "\n")


def make_record(
    measurements: Iterable[Measurement], *, taken: date, version: str, machine: str, quick: bool
) -> Record:
    """Return the record of a run."""
    results = {
        each.name: Kept(
            unit=each.unit,
            median=each.median,
            min=min(each.values),
            max=max(each.values),
            repetitions=len(each.values),
        )
        for each in measurements
    }
    return Record(taken=taken, version=version, machine=machine, quick=quick, results=results)


def compare(
    measurements: Iterable[Measurement], history: Sequence[Record], *, machine: str, quick: bool
) -> Iterator[Change]:
    """Yield each measurement with the last record of it, among records of runs of the same size.

    Only without a record of this machine, the record is one of another machine.
    """
    here = [record for record in history if record.machine == machine]
    for measurement in measurements:
        found = _last(measurement, here, quick=quick) or _last(measurement, history, quick=quick)
        if found is None:
            yield Change(measurement)
        else:
            record, kept = found
            yield _judge(measurement, kept, record.taken, alike=record.machine == machine)


def _last(
    measurement: Measurement, history: Sequence[Record], *, quick: bool
) -> tuple[Record, Kept] | None:
    for record in reversed(history):
        kept = record.results.get(measurement.name)
        if record.quick == quick and kept is not None and kept.unit == measurement.unit:
            return record, kept
    return None


def _judge(measurement: Measurement, kept: Kept, taken: date, *, alike: bool) -> Change:
    if not alike:
        return Change(measurement, kept, taken, "another machine")
    if kept.repetitions == 1:
        return Change(measurement, kept, taken, "one repetition")
    low = Bound("at least", kept.median - kept.noise)
    high = Bound("at most", kept.median + kept.noise)
    bound, other = (low, high) if measurement.better == "higher" else (high, low)
    verdict: Verdict = "inside" if other.holds(measurement.median) else "better"
    if not bound.holds(measurement.median):
        verdict = "worse"
    return Change(measurement, kept, taken, verdict, bound)
