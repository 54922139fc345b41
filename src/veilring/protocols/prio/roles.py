"""The roles of a classifier from verified sums: pools of clients, the leader and the helper.

Each client sends one share of its report to the leader and the other to the helper. Both verify all
reports together, add up their shares of those whose proofs hold, and add their own noise. Only then
do they exchange these sums, whose total makes the model. Everything takes one session; a deployment
that collects reports for weeks takes the same steps in many.

Source: Corrigan-Gibbs and Boneh, "Prio: private, robust, and scalable computation of aggregate
statistics" (NSDI 2017), by the steps of `draft-irtf-cfrg-vdaf-08`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.data.table import Rows, check_rows
from veilring.errors import InputError, ProtocolViolation, Tampered
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.privacy.checks import require, require_that
from veilring.protocols.chunks import NextChunk, exchange_chunks, exchange_cost, sending_cost, split
from veilring.protocols.digests import DIGEST_BYTES, Digest
from veilring.protocols.prio.algorithm.parameters import PrioParameters
from veilring.protocols.promise import Forecast, repeated, total_cost
from veilring.protocols.release.algorithm.steps import Released, released_by
from veilring.transport.frames import CONTENT_BYTES_MAX
from veilring.transport.messages import Array, Message

if TYPE_CHECKING:
    from veilring.protocols.prio.algorithm.steps import SharedReports

KEY_BYTES: Final = 16
"""The size of a key of verification (draft-08)."""

_M = TypeVar("_M", bound=Message)
_Count = Annotated[int, Field(ge=0)]
_Octets = NDArray[np.uint8]
_Bytes = Annotated[_Octets, Array("|u1", 2)]
"""Rows of bytes, one for each report."""


class Opening(Message, kind="prio.opening"):
    """The parameters of the sender, and the number of reports that it is going to send."""

    parameters: Digest
    reports: _Count = 0


class VerifyKey(Message, kind="prio.key"):
    """The key of verification, from the leader, and the number of reports of each pool."""

    key: Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    sizes: Annotated[tuple[_Count, ...], Field(strict=False)]


class ReportShares(Message, kind="prio.reports"):
    """An aggregator's part of reports: see `SharedReports`."""

    nonces: _Bytes
    public: _Bytes
    secret: _Bytes

    @property
    def width(self) -> int:
        """The bytes of a report."""
        return sum(each.shape[1] for each in (self.nonces, self.public, self.secret))


class ProofShares(Message, kind="prio.proofs"):
    """An aggregator's shares of the verification of reports, a row each."""

    shares: _Bytes


class Accepted(Message, kind="prio.accepted"):
    """Whether an aggregator accepts each report: 1, or 0."""

    reports: Annotated[_Octets, Array("|u1", 1)]


class NoisyShare(Message, kind="prio.noisy"):
    """An aggregator's share of the totals with its noise, shape (entries, bytes)."""

    entries: _Bytes


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients with one row each, and clients that send an empty report. Never shown."""

    rows: Rows
    empty: int = 0

    def __len__(self) -> int:
        return len(self.rows) + self.empty

    def __repr__(self) -> str:
        return f"Clients({len(self)})"


@dataclass(frozen=True, slots=True, eq=False)
class Verified(Released):
    """A release from verified reports, equal at both aggregators.

    Attributes:
        reports: The number of reports in the total.
        refused: The number of those whose proof failed.
    """

    reports: int
    refused: int


async def sum_reports(
    party: Party, clients: Clients | None, *, leader: str, helper: str, parameters: PrioParameters
) -> Verified | None:
    """Play a pool of clients, or one of the two aggregators, which get the release.

    Args:
        clients: The private input of a pool; none at the aggregators.

    Raises:
        ProtocolViolation: If a peer sent something that no honest party sends. A report with an
            invalid proof is none of this: it is refused and counted.
        Tampered: If a pool announced different numbers to the aggregators, or one of these lies.
    """
    if party.me in {leader, helper}:
        return await _aggregate(party, leader, helper, parameters)
    if clients is None:
        raise InputError.because(
            f"every party except {leader} and {helper} needs clients", field="clients"
        )
    require_ready(clients, parameters)
    await _report(party, clients, (leader, helper), parameters)
    return None


def require_ready(clients: Clients, parameters: PrioParameters) -> None:
    """Reject clients that cannot report: rows of another schema, too many, or reports too long."""
    check_rows(clients.rows, len(parameters.features), parameters.features.label_count)
    most = parameters.plan.rows
    require(len(clients) <= most, "rows", len(clients), f"at most {most}, the declared number")
    _reports_at_once(_parts_like(parameters, 0)[0])


async def _open(
    party: Party, parameters: PrioParameters, peers: Iterable[str], reports: int = 0
) -> dict[str, int]:
    """Compare the parameters with some peers, and return how many reports each of them has."""
    party.round(1)
    own, said = Opening(parameters=parameters.digest, reports=reports), dict[str, int]()
    await party.send_all(peers, own)
    for peer in peers:
        message = await party.receive(Opening, sender=peer, due=1)
        if message.parameters != own.parameters:
            raise ProtocolViolation(peer, "has other parameters")
        if message.reports > parameters.plan.rows:
            raise ProtocolViolation(peer, "announced more reports than all parties have")
        said[peer] = message.reports
    return said


async def _report(
    party: Party, clients: Clients, aggregators: tuple[str, str], parameters: PrioParameters
) -> None:
    """Send both aggregators their parts of all reports of a pool."""
    from veilring.protocols.prio.algorithm.steps import share_reports  # noqa: PLC0415  (an extra)

    await _open(party, parameters, aggregators, len(clients))
    shared = share_reports(parameters, clients.rows, clients.empty, party.rng)
    parts = {name: _message(part) for name, part in zip(aggregators, shared, strict=True)}
    await exchange_chunks(party, parts, {}, first_round=2)


async def _aggregate(
    party: Party, leader: str, helper: str, parameters: PrioParameters
) -> Verified:
    """Verify the reports of all pools with the other aggregator, and release their totals."""
    from veilring.protocols.prio.algorithm import steps  # noqa: PLC0415  (an extra)

    place, other = (0, helper) if party.me == leader else (1, leader)
    key, sizes = await _agree(party, leader, helper, parameters)
    expected = {pool: _parts_like(parameters, size)[place] for pool, size in sizes.items()}
    received = await exchange_chunks(party, None, expected, first_round=2)
    next_round = 2 + _upload_rounds(parameters, sizes.values())

    async def swap(own: _M) -> tuple[_M, _M]:
        """Exchange messages of one shape: the leader's, and the helper's."""
        nonlocal next_round
        first_round, next_round = next_round, next_round + len(split(own))
        found = await exchange_chunks(party, own, {other: own}, to=[other], first_round=first_round)
        return (found[other], own) if place else (own, found[other])

    parts = [
        steps.SharedReports(each.nonces, each.public, each.secret) for each in received.values()
    ]
    verified = steps.Verification.begin(parameters, key, place, parts)
    proofs = await swap(ProofShares(shares=verified.proof_shares))
    accepted = verified.judge(*(each.shares for each in proofs))
    verdicts = await swap(Accepted(reports=accepted.astype(np.uint8)))
    counted = np.logical_and(*(each.reports == 1 for each in verdicts))
    share = verified.noisy_share(counted, party.rng)
    scheme = parameters.form.scheme
    noisy = await swap(_noisy_message(scheme.encode_aggregate(share), parameters))
    try:
        shares = [scheme.decode_aggregate(each.entries.tobytes()) for each in noisy]
    except InputError as error:
        raise ProtocolViolation(other, "sent a share that is not below the modulus") from error
    total = steps.open_total(parameters, shares, int(counted.sum()))
    released = released_by(parameters, [total])
    return Verified(released.model, released.totals, int(counted.sum()), int((~counted).sum()))


async def _agree(
    party: Party, leader: str, helper: str, parameters: PrioParameters
) -> tuple[bytes, dict[str, int]]:
    """Return the key of verification, and the number of reports of each pool, in order."""
    sizes = await _open(party, parameters, party.peers)
    del sizes[helper if party.me == leader else leader]
    if not any(sizes.values()):
        raise InputError.because("no client has a report; at least one is needed", field="rows")
    party.round(2)
    if party.me == leader:
        key = party.rng.bytes(KEY_BYTES)
        await party.send(helper, VerifyKey(key=key, sizes=tuple(sizes.values())))
        return key, sizes
    message = await party.receive(VerifyKey, sender=leader, due=2)
    if len(message.sizes) != len(sizes):
        raise ProtocolViolation(leader, "sent sizes of another number of pools")
    for (pool, size), other_size in zip(sizes.items(), message.sizes, strict=True):
        if size != other_size:
            reason = f"the leader and the helper expect different numbers of reports of {pool}"
            party.accuse(Tampered((pool, leader), reason))
    return message.key, sizes


def _message(part: "SharedReports") -> ReportShares:
    return ReportShares(**part._asdict())


def _noisy_message(encoded: bytes, parameters: PrioParameters) -> NoisyShare:
    entries = np.frombuffer(encoded, np.uint8).reshape(parameters.statistic.length, -1)
    return NoisyShare(entries=entries)


def _parts_like(parameters: PrioParameters, reports: int) -> list[ReportShares]:
    """Return messages of the shapes of the leader's and the helper's parts of a pool's reports."""
    from veilring.protocols.prio.algorithm.steps import shares_like  # noqa: PLC0415  (an extra)

    return [_message(shares_like(parameters, place, reports)) for place in (0, 1)]


def _upload_rounds(parameters: PrioParameters, sizes: Iterable[int]) -> int:
    """Return the rounds in which pools of some sizes send all of their reports."""
    parts = (each for size in sizes for each in _parts_like(parameters, size))
    return max((len(split(each)) for each in parts), default=0)


def summing_cost(parameters: PrioParameters, sizes: Sequence[int]) -> Forecast:
    """Forecast `sum_reports` for pools with the given numbers of reports."""
    traffic = _opening_traffic(sizes)
    parts = [each for size in sizes for each in _parts_like(parameters, size)]
    for part in parts:
        traffic = traffic.plus(sending_cost(part).traffic)
    rounds = 1 + max((len(split(part)) for part in parts), default=0)
    return Forecast(rounds, traffic) + _verifying_cost(parameters, sum(sizes))


def summing_cost_bounds(parameters: PrioParameters, pools: int, reports: int) -> Forecast:
    """Forecast `sum_reports` before the sizes of pools are known: the minimum, with `most`."""
    ends = [Forecast(1, _opening_traffic([size] * pools)) for size in (0, reports)]
    rounds = [1, 1]
    for place, empty in enumerate(_parts_like(parameters, 0)):
        width, at_once = empty.width, _reports_at_once(empty)
        full = _parts_like(parameters, min(reports, at_once))[place]
        chunks = max(pools, ceil(reports / at_once)), pools + max(0, reports - 1) // at_once
        largest = ceil(reports / pools), reports
        for end, like in enumerate((empty, full)):
            rounds[end] = max(rounds[end], ceil(largest[end] / at_once))
            sent = repeated(chunks[end], like).plus(repeated(chunks[end] - pools, NextChunk()))
            beyond = (reports - chunks[end] * len(like.nonces)) * width
            ends[end] += Forecast(0, sent.plus(Traffic(0, beyond)))
    least, most = (Forecast(each, Traffic()) + end for each, end in zip(rounds, ends, strict=True))
    return Forecast(least.rounds, least.traffic, most=most) + _verifying_cost(parameters, reports)


def _reports_at_once(part: ReportShares) -> int:
    """Return how many reports a message has room for, at least one."""
    require_that(
        part.width <= CONTENT_BYTES_MAX,
        "statistic",
        f"a report has {part.width:,} bytes, and a frame has room for {CONTENT_BYTES_MAX:,}; use"
        " fewer bits, or a statistic with fewer numbers",
    )
    return CONTENT_BYTES_MAX // part.width


def _opening_traffic(sizes: Sequence[int]) -> Traffic:
    """Return the traffic before the first report: what all parties say, and the key."""
    traffic = repeated(1, VerifyKey(key=bytes(KEY_BYTES), sizes=tuple(sizes)))
    for size in (*sizes, *(0,) * (len(sizes) + 1)):  # both aggregators answer each other, too
        traffic = traffic.plus(repeated(2, Opening(parameters=bytes(DIGEST_BYTES), reports=size)))
    return traffic


def _verifying_cost(parameters: PrioParameters, reports: int) -> Forecast:
    """Return the cost of all exchanges between the aggregators."""
    scheme = parameters.form.scheme
    swapped = (
        ProofShares(shares=np.zeros((reports, scheme.prep_share_size), np.uint8)),
        Accepted(reports=np.zeros(reports, np.uint8)),
        _noisy_message(bytes(scheme.aggregate_share_size), parameters),
    )
    return total_cost(*(exchange_cost(2, each) for each in swapped))
