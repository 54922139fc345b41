"""The plan of statistics among peers: its public terms, noise, promise, forecast and estimates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import isqrt, nan, prod
from numbers import Integral
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from veilring.arrays import Ints
from veilring.nodes.ring import PARTIES_MIN
from veilring.privacy.checks import require, require_that
from veilring.protocols.digests import DIGEST_BYTES, digest_of, written
from veilring.protocols.masks import confirming_cost, keys_cost, masked_cost
from veilring.protocols.promise import Forecast, Promise, colluding, measure_of, total_cost
from veilring.protocols.release.algorithm.noise import (
    Account,
    NoiseDistribution,
    Sensitivity,
    SumNoise,
    Trust,
    account_of,
    plan_noise,
    scale_for,
    tolerated_default,
)
from veilring.protocols.statistics.algorithm.columns import Column, Encoded, encode_table
from veilring.protocols.statistics.algorithm.suppression import publish, require_protectable
from veilring.protocols.statistics.algorithm.tallies import Line, Statistic, Totals, as_exact

ROWS_MAX: Final = 2**20
"""The default for the rows of one party. The squares of a million steps then fit into a word, for
millions of rows of all parties together."""
DELTA: Final = 1e-5
"""The default δ, as that of `veilring.Release`."""
CELLS_MAX: Final = 2**20
"""A party then sends at most 8 MiB to each other one."""
FINE: Final = 2**10
"""A count is in up to this many parts under noise that needs a δ: its shares need fine numbers."""

_WORD_MAX: Final = 2**63 - 1  # words are added modulo 2**64, and read with a sign
_HIDDEN: Final = -(2**63)  # which no total reaches
_WORD: Final = np.dtype("<i8")

Heard: TypeAlias = tuple[tuple[Totals, ...], ...]
"""For each statistic, the totals of its rounds so far. Public."""


@dataclass(frozen=True)
class Plan:
    """The public terms of some statistics, equal for all parties.

    Attributes:
        statistics: The statistics, which share the sums and the budget.
        parties: The number of parties, at least 3.
        rows_max: The maximum number of rows of one party.
        small: The smallest number of rows that a published count may be, apart from 0; 0 shows all
            counts. It does not protect from the parties, which open the totals.
        epsilon: The ε of all statistics together; None for exact ones.
        delta: The δ; 0 for a pure guarantee.
        tolerated: The number of parties that may collude, if there is an ε. `auto` is the largest
            number below half of the parties.
        person_rows: The maximum number of rows of one person, for whom ε holds.
    """

    statistics: tuple[Statistic[Any], ...]
    parties: int
    rows_max: int = ROWS_MAX
    small: int = 0
    epsilon: float | None = None
    delta: float = DELTA
    tolerated: Literal["auto"] | int = "auto"
    person_rows: int = 1

    def __post_init__(self) -> None:
        require(len(self.statistics) > 0, "statistics", len(self.statistics), "at least one")
        require(self.parties >= PARTIES_MIN, "parties", self.parties, f"at least {PARTIES_MIN}")
        limits = {"rows_max": 1, "small": 0, "person_rows": 1}
        limits |= {} if self.tolerated == "auto" else {"tolerated": 0}
        for field, least in limits.items():
            value = getattr(self, field)
            good = isinstance(value, Integral) and int(value) >= least
            require(good, field, value, f"a whole number of at least {least}")
        require_that(
            self.small == 0 or self.epsilon is None,
            "small",
            "`small` hides exact counts, and noise with ε protects all of them; give only one",
        )
        _ = self.columns  # refuses two ranges of one column
        cells = sum(line.cells for line in self.lines)
        require_that(
            cells <= CELLS_MAX,
            "statistics",
            f"the sums of the plan have {cells:,} numbers together, and may have {CELLS_MAX:,}; ask"
            " for fewer statistics, or for coarser ones",
        )
        if self.small:
            require_protectable(self.statistics)
        self._require_room()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the statistics read."""
        found = dict[str, Column]()
        for column in (column for each in self.statistics for column in each.columns):
            require_that(
                found.setdefault(column.name, column) == column,
                "statistics",
                f"the column {column.name!r} is declared in two ways; declare it once",
            )
        return (*found.values(),)

    @cached_property
    def rounds(self) -> int:
        """The number of sums, one after the other."""
        return max(each.rounds for each in self.statistics)

    @cached_property
    def digest(self) -> bytes:
        """The hash of the plan, and of its noise, which may depend on the version."""
        return digest_of(written(self).encode(), *(written(each).encode() for each in self.noises))

    # The noise.

    @property
    def trust(self) -> Trust:
        """The parties whose shares of the noise count."""
        automatic = self.tolerated == "auto"
        tolerated = tolerated_default(self.parties) if automatic else int(self.tolerated)
        return Trust(self.parties, max(1, tolerated))  # an observer knows its own share

    @property
    def silence(self) -> Heard:
        """The totals before the first round."""
        return ((),) * len(self.statistics)

    @cached_property
    def _rounds(self) -> tuple[tuple[Line, ...], ...]:
        """The lines of each round, with the right sizes."""
        return tuple(self._lines_in(number, self.silence) for number in range(self.rounds))

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of all rounds, with the right sizes."""
        return (*chain(*self._rounds),)

    @property
    def _distribution(self) -> NoiseDistribution:
        return "gaussian" if self.delta else "laplace"

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """The number of parts of 1 in each line: with noise that needs a δ, counts are scaled."""
        if self.epsilon is None or not self.delta:
            return (1,) * len(self.lines)
        given = self._distribution, self.epsilon, self.delta, self.trust
        weight = Fraction(1, len(self.lines))
        return tuple(
            scale_for(
                *given,
                Fraction(self.person_rows * line.reach) ** 2,
                most=max(1, FINE // line.reach),
                weight=weight,
            )
            for line in self.lines
        )

    @cached_property
    def noises(self) -> tuple[SumNoise, ...]:
        """The noise of each line of all rounds, each with an equal part of ε; none without ε.

        A line changes most if all rows of a person are in one cell.
        """
        if self.epsilon is None:
            return ()
        pairs = [*zip(self.lines, self.scales, strict=True)]
        changes = [self.person_rows * line.reach * scale for line, scale in pairs]
        sums = [
            Sensitivity("l2", most**2, line.cells)
            if self.delta
            else Sensitivity("l1", most, line.cells)
            for most, (line, _) in zip(changes, pairs, strict=True)
        ]
        given = self._distribution, self.epsilon, self.delta, self.trust
        return plan_noise(*given, sums, weights=(Fraction(1, len(sums)),) * len(sums))

    @cached_property
    def account(self) -> Account | None:
        """The guarantee of all sums together; None without ε."""
        return account_of(self.noises) if self.noises else None

    def _require_room(self) -> None:
        """Refuse sums that may not fit into words, by the public numbers of parties and rows."""
        rows = self.parties * self.rows_max
        for noise in self.noises:
            noise.require_room(rows)
        most = rows * max(line.reach for line in self.lines)
        enough = isqrt(_WORD_MAX // rows)
        require_that(
            most <= _WORD_MAX,
            "rows_max",
            f"sums over {self.rows_max:,} rows of each of {self.parties} parties may reach"
            f" {most:.2g}, and a word of 64 bits holds {_WORD_MAX:.2g}: declare fewer rows, or"
            f" coarser steps, up to {enough:,} on either side of the middle for squares",
        )

    # What a party computes.

    def encode(self, table: Mapping[str, ArrayLike]) -> Encoded:
        """Return a party's table as whole numbers, or refuse it; see `encode_table`."""
        return encode_table(table, self.columns, self.rows_max)

    def tally(self, encoded: Encoded, heard: Heard, rng: np.random.Generator) -> Ints:
        """Return a party's part of the next round, with its share of the noise. It is secret.

        Args:
            heard: The public totals of the rounds before.
        """
        number = _next_round(heard)
        lines, where = self._lines_in(number, heard), self._where(number)
        scaled = [
            line.add_up(encoded) * scale
            for line, scale in zip(lines, self.scales[where], strict=True)
        ]
        shares = [noise.share(rng) for noise in self.noises[where]]
        return np.concatenate(scaled) + (np.concatenate(shares) if shares else 0)

    def read(self, total: Ints, heard: Heard) -> Heard:
        """Return the totals of all rounds, with those of the round that was just added up."""
        number = _next_round(heard)
        lines = self._lines_in(number, heard)
        ends = np.cumsum([line.cells for line in lines])[:-1]
        scales = self.scales[self._where(number)]
        sums = [as_exact(*pair) for pair in zip(np.split(total, ends), scales, strict=True)]
        shared, own = dict(zip(lines, sums, strict=True)), iter(sums)

        def heard_now(each: Statistic[Any], totals: tuple[Totals, ...]) -> tuple[Totals, ...]:
            if number >= each.rounds:
                return totals
            found = [shared[x] if number == 0 else next(own) for x in each.lines(number, totals)]
            return (*totals, np.array(found, np.object_))

        return tuple(map(heard_now, self.statistics, heard))

    def publish(self, heard: Heard) -> tuple[Totals, ...]:
        """Return the numbers of each statistic that readers may learn."""
        return publish(self.statistics, heard, self.small)

    def estimate(self, shown: Sequence[Totals]) -> tuple[Any, ...]:
        """Return the result of each statistic; NaN where it is hidden."""
        return tuple(s.estimate(each) for s, each in zip(self.statistics, shown, strict=True))

    @cached_property
    def _shown_scales(self) -> list[int]:
        """The scale of each number that is published."""
        scale = dict(zip(self.lines, self.scales, strict=True))
        return [
            scale[line]
            for each in self.statistics
            for line in each.lines(0)
            for _ in range(each.shape[1])
        ]

    @property
    def size(self) -> int:
        """The number of bytes of `pack`."""
        return DIGEST_BYTES + _WORD.itemsize * len(self._shown_scales)

    def pack(self, shown: Sequence[Totals]) -> bytes:
        """Return published numbers as bytes, equal on all machines, with the hash of the plan."""
        values = chain(*(each.ravel() for each in shown))
        words = [
            _HIDDEN if isinstance(value, float) else int(value * scale)
            for value, scale in zip(values, self._shown_scales, strict=True)
        ]
        return self.digest + np.array(words, _WORD).tobytes()

    def unpack(self, packed: bytes) -> tuple[Totals, ...]:
        """Return the published numbers from their bytes.

        Raises:
            InputError: If they are of another plan, or of another version of its noise.
        """
        good = len(packed) == self.size and packed[:DIGEST_BYTES] == self.digest
        require_that(good, "result", "these bytes are not the result of this plan")
        words = np.frombuffer(packed[DIGEST_BYTES:], _WORD).tolist()
        values = [
            nan if word == _HIDDEN else Fraction(word, scale)
            for word, scale in zip(words, self._shown_scales, strict=True)
        ]
        shapes = [each.shape for each in self.statistics]
        parts = np.split(np.array(values, np.object_), np.cumsum([*map(prod, shapes)])[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))

    def _lines_in(self, number: int, heard: Heard) -> tuple[Line, ...]:
        """Return the lines of a round: those of all statistics, equal ones of the first once."""
        pairs = zip(self.statistics, heard, strict=True)
        lines = [
            line
            for each, totals in pairs
            if number < each.rounds
            for line in each.lines(number, totals)
        ]
        return tuple(lines if number else dict.fromkeys(lines))

    def _where(self, number: int) -> slice:
        """Return the positions of a round's lines among those of all rounds."""
        start = sum(map(len, self._rounds[:number]))
        return slice(start, start + len(self._rounds[number]))

    # What is promised, and what it costs.

    @property
    def promise(self) -> Promise:
        """What is protected, from whom, and under which assumption."""
        sums = "the total of each tally" + (", with noise" if self.epsilon is not None else "")
        hidden = (
            f" Results hide counts from 1 to {self.small - 1}, and others from which they follow:"
            f" from all shown counts of this plan and their margins, no linear program bounds a"
            f" hidden small count closer than from 1 to {self.small}. Counts of 0 are shown, and"
            f" so are quantiles with {self.small} rows between them and on either side. Sums are"
            f" exact, unless they bound a hidden count of intervals of their number. It"
            " holds for readers of the results, not for the parties, which open all totals, and"
            " not for the results of two plans."
            if self.small
            else ""
        )
        if self.epsilon is None:
            return Promise(
                protects="each party's rows, apart from the totals",
                against=f"any coalition of up to {self.parties - 2} of the {self.parties} parties",
                threat_model=f"semi-honest parties, of which up to {self.parties - 2} collude",
                adjacency="",
                epsilon=None,
                delta=0.0,
                unit="plan",
                measure="totals only, no ε",
                learned=f"all parties: {sums}",
                note="A total may tell about a row, and more so with what else is known: two plans"
                " that differ by a row, or a count of 1." + hidden,
            )
        tolerated, rows = self.trust.tolerated, self.person_rows
        person = f"a person with up to {rows} rows added or removed"
        return Promise(
            protects="each party's rows",
            against="anyone who sees the results, including the other parties",
            threat_model="semi-honest parties: all add their noise, and"
            f" {colluding(tolerated, self.parties)}",
            adjacency="one row added or removed" if rows == 1 else person,
            epsilon=self.epsilon,
            delta=self.delta,
            unit="plan",
            measure=measure_of(self.delta),
            learned=f"all parties: {sums}",
            note="The ε is that of all statistics of the plan together, and those of plans add up.",
        )

    @property
    def forecast(self) -> Forecast:
        """The cost: a masked sum for each round, and a last round that confirms the totals."""
        lengths = [sum(line.cells for line in lines) for lines in self._rounds]
        words = [(np.zeros(length, np.int64),) for length in lengths]
        sums = [masked_cost(self.parties, each, star=False) for each in words]
        total = total_cost(*sums, confirming_cost(self.parties))
        return Forecast(total.rounds, total.traffic, keys_cost(self.parties))


def _next_round(heard: Heard) -> int:
    """Return the number of rounds before, from 0."""
    return max(map(len, heard))
