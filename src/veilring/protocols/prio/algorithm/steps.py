"""The steps of a verified sum: reports are shared, verified, added up and opened with noise.

An aggregator adds its noise to its share of the totals before it shows that share to anybody. Each
aggregator's noise suffices alone; the sum of both has twice the variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.random import Generator

from veilring.arrays import Bools
from veilring.data.table import Rows
from veilring.protocols.prio.algorithm.fields import Elements, Octets
from veilring.protocols.prio.algorithm.parameters import PrioParameters
from veilring.protocols.prio.algorithm.prio3 import Preparation
from veilring.protocols.release.algorithm.steps import Total


class SharedReports(NamedTuple):
    """An aggregator's part of reports, a row each.

    Attributes:
        nonces: The public names of the reports.
        public: The part that both aggregators get.
        secret: The share of this aggregator.
    """

    nonces: Octets
    public: Octets
    secret: Octets


def share_reports(
    parameters: PrioParameters, rows: Rows, empty: int, rng: Generator
) -> list[SharedReports]:
    """Return the parts of the leader and the helper: reports of rows, then empty ones. Secret."""
    scheme, measured = parameters.form.scheme, parameters.form.measure(rows, empty)
    if not len(measured):
        return [shares_like(parameters, aggregator, 0) for aggregator in range(scheme.shares)]
    nonces = _draw(rng, len(measured), scheme.draft.nonce_bytes)
    public, secrets = scheme.shard(measured, nonces, _draw(rng, len(measured), scheme.rand_size))
    return [SharedReports(nonces, public, secret) for secret in secrets]


def shares_like(parameters: PrioParameters, aggregator: int, reports: int) -> SharedReports:
    """Return zeros of the shape of an aggregator's part of the given number of reports."""
    scheme = parameters.form.scheme
    widths = (
        scheme.draft.nonce_bytes,
        scheme.public_share_size,
        scheme.input_share_sizes[aggregator],
    )
    return SharedReports(*(np.zeros((reports, width), np.uint8) for width in widths))


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """An aggregator's state of all reports of a session. Secret, except for the proof shares."""

    parameters: PrioParameters
    preparation: Preparation

    @classmethod
    def begin(
        cls, parameters: PrioParameters, key: bytes, aggregator: int, pools: Sequence[SharedReports]
    ) -> Self:
        """Prepare the reports of all pools.

        Args:
            key: The key of verification, which no client may know.
            aggregator: 0 for the leader, and 1 for the helper.
            pools: The parts of all pools, with at least one report.
        """
        joined = SharedReports(*map(np.concatenate, zip(*pools, strict=True)))
        found = parameters.form.scheme.prepare(key, aggregator, *joined)
        found.valid[_repeated(joined.nonces)] = False
        found.prep_shares[~found.valid] = 0  # which the other aggregator refuses
        return cls(parameters, found)

    @property
    def proof_shares(self) -> Octets:
        """The rows to exchange with the other aggregator."""
        return self.preparation.prep_shares

    def judge(self, leader: Octets, helper: Octets) -> Bools:
        """Return which reports this aggregator accepts, given the proof shares of both."""
        scheme = self.parameters.form.scheme
        messages, proved = scheme.combine(leader, helper)
        _, finished = scheme.finish(self.preparation, messages)
        return np.asarray(proved & finished)

    def noisy_share(self, counted: Bools, rng: Generator) -> Elements:
        """Return the share of the totals of some reports, with this aggregator's noise.

        Args:
            counted: The reports that both aggregators accept, shape (reports,).
            rng: The secret randomness of this aggregator.
        """
        scheme, (noise,) = self.parameters.form.scheme, self.parameters.noises
        field = scheme.field
        share = scheme.aggregate(self.preparation.out_shares, counted)
        scaled = field.mul(share, field.elements([self.parameters.form.scale]))
        return field.add(scaled, field.elements(noise.share(rng).tolist()))


def _repeated(nonces: Octets) -> Bools:
    """Return which reports have the nonce of an earlier one."""
    found = np.ones(len(nonces), dtype=np.bool_)
    found[np.unique(nonces, axis=0, return_index=True)[1]] = False
    return found


def open_total(parameters: PrioParameters, shares: Sequence[Elements], reports: int) -> Total:
    """Return the noisy total of both shares, of the given number of reports."""
    form = parameters.form
    sums = np.array(form.scheme.unshard(shares, reports), dtype=np.int64)
    return Total(sums - reports * form.offset, len(shares))


def _draw(rng: Generator, rows: int, width: int) -> Octets:
    return np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)
