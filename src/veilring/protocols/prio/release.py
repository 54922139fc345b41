"""The noisy total of a batch: each aggregator's noise, its price, and the sum of both shares.

Each aggregator adds noise that is enough alone: the other one may be an adversary, together with
the collector and any clients. The total therefore has twice the variance of one owner's noise. An
aggregator draws its noise once, in the transaction that charges for it, so a total that is
collected again is the same.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from sqlite3 import Connection

import numpy as np
from numpy.random import Generator

from veilring.arrays import Ints
from veilring.errors import InputError, ProtocolViolation, StoreFailed, Tampered
from veilring.privacy.budgets import Charge
from veilring.privacy.checks import require, require_that
from veilring.privacy.draws import require_scale
from veilring.privacy.ledger import Ledger
from veilring.privacy.noise import discrete_laplace_tail
from veilring.protocols.prio.algorithm.fields import Elements
from veilring.protocols.prio.algorithm.parameters import AGGREGATORS
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.messages import TotalShare
from veilring.protocols.prio.scheme import entries_of, norm_of
from veilring.protocols.prio.store import Batch, ShareStore
from veilring.protocols.prio.task import Task
from veilring.protocols.promise import Promise, measure_of
from veilring.protocols.release.algorithm.noise import ROOM_DEVIATIONS, Sensitivity, SumNoise
from veilring.protocols.requests import RequestRefusal, answer_once, content_key


def noise_of(task: Task) -> SumNoise | None:
    """Return the noise of each aggregator: exact discrete Laplace noise; none without an ε.

    Raises:
        InputError: If the ε needs noise that is too wide to draw, or so narrow that it is none.
    """
    if task.epsilon is None:
        return None
    most = task.norm or norm_of(task.vdaf)
    row = Sensitivity("l1", most, entries_of(task.vdaf))
    spread = require_scale("scale of the noise", most / Fraction(task.epsilon))
    return SumNoise("laplace", spread, row, AGGREGATORS)


def require_room(task: Task, prio: Prio3) -> None:
    """Reject a task whose totals of the minimum of reports, with their noise, may be ambiguous.

    Raises:
        InputError: If they may exceed half of the modulus, beyond which numbers are negative.
    """
    noise = noise_of(task)
    reach = 0 if noise is None else math.ceil(ROOM_DEVIATIONS * noise.deviation())
    most = task.minimum * prio.circuit.largest + reach
    require_that(
        2 * most < prio.field.modulus,
        "minimum",
        f"a total of {task.minimum:,} reports and its noise may reach {most:.2g}, and the field of"
        f" {task.vdaf.kind} holds {prio.field.modulus / 2:.2g}: use a smaller minimum or fewer"
        " bits, or the field of 128 bits",
    )


def promise_of(task: Task) -> Promise:
    """Return the guarantee of each client's report."""
    most = f"{norm_of(task.vdaf):,}"
    promise = Promise(
        protects="each client's report",
        against="one of the aggregators, the collector and all other clients, together",
        threat_model="one honest aggregator: the other one may pool its view with the collector and"
        " any clients",
        adjacency="a person with one report in a batch added or removed"
        + (f", who answers as asked (an L1 norm of at most {task.norm:,})" if task.norm else ""),
        epsilon=task.epsilon,
        delta=0.0,
        unit="batch",
        measure="no ε: totals are exact" if task.epsilon is None else measure_of(0.0),
        learned="the collector: the noisy totals and the number of reports of each batch; both"
        " aggregators: the times of uploads and the number of valid reports",
        note="A report that is not valid is refused, and a valid report changes a total by at most"
        f" {most}. Either aggregator can change a total unnoticed. The number of reports of a batch"
        " is public, and no ε protects it. One report exchanged for another one costs at most twice"
        " the ε; so does a new report after a refusal, if a leader that lies kept the first.",
    )
    if task.epsilon is not None:
        return promise
    return replace(
        promise,
        against="one of the aggregators, or the collector",
        threat_model="one honest aggregator: the other one does not share its view with the"
        " collector",
        adjacency="",
        note="Totals are exact, and no batch has fewer reports than"
        f" {task.minimum:,}. A collector that is in league with an aggregator, or with the other"
        " clients of a batch, learns a report exactly: with an ε it does not. A report that is not"
        f" valid is refused, and a valid report changes a total by at most {most}. Either"
        " aggregator can change a total unnoticed.",
    )


def half_width(noise: SumNoise | None, confidence: float, batches: int = 1) -> int:
    """Return the least number that the noise of a total exceeds with at most 1 - `confidence`.

    Args:
        noise: The noise of each party; none for exact totals.
        confidence: Above 0 and below 1.
        batches: The number of batches whose totals are added.
    """
    require(0 < confidence < 1, "confidence", confidence, "a number between 0 and 1")
    if noise is None or not batches:
        return 0
    draws, scale = float(batches * noise.trust.factor), noise.spread

    def is_enough(k: int) -> bool:
        return discrete_laplace_tail(k, scale, draws) <= 1 - confidence

    high = 1
    while not is_enough(high):
        high *= 2
    return bisect_left(range(high + 1), True, key=is_enough)


@dataclass(frozen=True, slots=True)
class Releases:
    """The totals of one aggregator.

    Attributes:
        price: The ε of a batch.
        noise: The noise of this aggregator; none for exact totals.
        rng: The aggregator's secret randomness.
    """

    task: Task
    prio: Prio3
    store: ShareStore
    ledger: Ledger
    price: float
    noise: SumNoise | None
    rng: Callable[[], Generator]

    def request(self, number: int) -> bytes:
        """Return the content of a request for a batch, by which the ledger knows it."""
        return self.task.task_id + number.to_bytes(8)

    def release(
        self, batch: Batch, collector: str, count: Callable[[Connection], object] | None = None
    ) -> TotalShare | RequestRefusal:
        """Return the noisy share of a batch that both have fixed, charging for it the first time.

        Args:
            count: Called in the transaction of the charge.
        """
        if batch.total is None:
            content = self.request(batch.number)
            key = content_key("batch", content)

            def write(db: Connection) -> None:
                self.store.write_total(batch.number, self._total(batch), db)
                if count is not None:
                    count(db)

            def pay() -> bytes:
                charge = Charge(collector, key.hex(), content, b"", self.price)
                return self.ledger.charge(charge, write)

            paid = answer_once(self.ledger, collector, key, content, amount=self.price, pay=pay)
            if isinstance(paid, RequestRefusal):
                return paid
        return self._share(self.store.batch(batch.number) or batch)

    def like(self) -> TotalShare:
        """Return a share of zeros, of the shape of each share."""
        return like_share(self.prio)

    def _share(self, batch: Batch) -> TotalShare:
        entries = np.frombuffer(batch.total or b"", np.uint8).reshape(self.like().entries.shape)
        return TotalShare(
            number=batch.number, reports=batch.reports, digest=batch.digest, entries=entries
        )

    def _total(self, batch: Batch) -> bytes:
        """Add the noise to the sum of the output shares of a batch."""
        field, added = self.prio.field, 0
        total = self._encoded(self._drawn())
        for shares in self.store.output_shares(batch.number, self.prio.aggregate_share_size):
            outputs, canonical = field.decode(shares)
            total = field.add(total, self.prio.aggregate(outputs, canonical))
            added += int(canonical.sum())
        if added != batch.reports:
            missing = batch.reports - added
            raise StoreFailed(f"{missing} shares of batch {batch.number} are missing or damaged")
        return self.prio.encode_aggregate(total)

    def _encoded(self, noise: Ints) -> Elements:
        """Return whole numbers of any sign as a share, shape (words, entries)."""
        modulus, size = self.prio.field.modulus, self.prio.field.element_bytes
        encoded = b"".join((each % modulus).to_bytes(size, "little") for each in noise.tolist())
        return self.prio.decode_aggregate(encoded)

    def _drawn(self) -> Ints:
        if self.noise is None:
            return np.zeros(self.prio.output_length, dtype=np.int64)
        return self.noise.share(self.rng())


def like_share(prio: Prio3) -> TotalShare:
    """Return a share of zeros, of the shape of each share."""
    shape = prio.output_length, prio.field.element_bytes
    return TotalShare(number=0, reports=0, digest=bytes(32), entries=np.zeros(shape, np.uint8))


def open_total(
    prio: Prio3, leader: TotalShare, helper: TotalShare, *, names: tuple[str, str]
) -> list[int]:
    """Return the noisy total of two shares, which may be negative: one whole number an entry.

    Raises:
        Tampered: If the shares are of different batches; it names both aggregators.
        ProtocolViolation: If a share is not of the field.
    """
    same = (leader.number, leader.reports, leader.digest)
    if same != (helper.number, helper.reports, helper.digest):
        raise Tampered(names, "sent shares of totals of different reports")
    shares = [_decoded(prio, *each) for each in zip((leader, helper), names, strict=True)]
    return prio.unshard(shares, leader.reports)


def _decoded(prio: Prio3, share: TotalShare, sender: str) -> Elements:
    try:
        return prio.decode_aggregate(share.entries.tobytes())
    except InputError as error:
        raise ProtocolViolation(sender, "sent a share of a total beyond the field") from error
