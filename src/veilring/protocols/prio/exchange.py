"""The sessions of a verified sum: a leader with its helper, and a collector with each of them.

All are of two parties. `verify_reports` and `answer_reports` take one exchange for many reports,
`close_batch` and `answer_proposal` another one for a batch; a further one is needed only if one of
the two has lost reports. `sum_verified` plays all of it once in one session of three parties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError, ProtocolViolation
from veilring.nodes.journal import Traffic
from veilring.nodes.party import Party
from veilring.nodes.service import Offload, run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import LEDGER, open_ledger
from veilring.privacy.statefile import open_state_file
from veilring.protocols.prio.aggregator import (
    HELPER,
    Exchange,
    Helper,
    Leader,
    Proposal,
    exchange_reports,
)
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.messages import (
    ID_BYTES,
    KEY_BYTES,
    BatchAnswer,
    LeaderMessage,
    PreparedReports,
    PrepareReports,
    ProposeBatch,
    TotalShare,
)
from veilring.protocols.prio.release import Releases, like_share, noise_of, open_total
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.store import PART_DIGEST_BYTES, PARTS, SHARES, ShareStore, Upload
from veilring.protocols.prio.task import Task
from veilring.protocols.promise import Forecast, repeated
from veilring.transport.messages import Message

_M = TypeVar("_M", bound=Message)
_LAST_ROUND: Final = 1 << 31  # after any number of exchanges


async def verify_reports(
    party: Party,
    exchange: Exchange,
    leader: Leader,
    *,
    helper: str,
    offload: Offload = run_inline,
    first_round: int = 1,
) -> int:
    """Verify reports with the helper, and return the number of those that were accepted.

    Raises:
        ProtocolViolation: If no honest helper answers so.
    """
    answer = await _ask(party, exchange.message, PreparedReports, helper, first_round)
    return await offload(partial(leader.finish, exchange, answer, helper))


async def close_batch(
    party: Party,
    proposal: Proposal,
    leader: Leader,
    *,
    helper: str,
    offload: Offload = run_inline,
    first_round: int = 1,
) -> int:
    """Fix a batch with the helper, and return the round after that.

    Raises:
        ProtocolViolation: If the helper denies reports that it has accepted.
    """
    left: Proposal | None = proposal
    while left is not None:
        answer = await _ask(party, left.message, BatchAnswer, helper, first_round)
        left = await offload(partial(leader.settle, left, answer, helper))
        first_round += 2
    return first_round


async def _ask(
    party: Party, message: LeaderMessage, expected: type[_M], helper: str, number: int
) -> _M:
    """Send a message to the helper in a round, and return the answer of the next round."""
    party.round(number)
    await party.send(helper, message)
    return await party.receive(expected, sender=helper, due=number + 1)


async def answer_leader(
    party: Party,
    helper: Helper,
    *,
    leader: str,
    offload: Offload = run_inline,
    first_round: int = 1,
) -> PreparedReports | BatchAnswer:
    """Answer one message of a leader, and return the answer.

    Raises:
        ProtocolViolation: If no honest leader sends such a message.
    """
    message = await party.receive(LeaderMessage, sender=leader, due=first_round)
    answer: PreparedReports | BatchAnswer
    if isinstance(message, PrepareReports):
        answer = await offload(partial(helper.answer, message, leader))
    elif isinstance(message, ProposeBatch):
        answer = await offload(partial(helper.consider, message, leader))
    else:
        raise ProtocolViolation(leader, f"sent {message.kind}")
    party.round(first_round + 1)
    await party.send(leader, answer)
    return answer


@dataclass(frozen=True, slots=True)
class Roles:
    """The names of the three parties that open a total."""

    leader: str
    helper: str
    collector: str


async def sum_verified(
    party: Party, uploads: Sequence[Upload] = (), *, task: Task, roles: Roles
) -> list[int] | None:
    """Play one of the three parties of one verified sum, in memory, from uploads to the total.

    Args:
        uploads: The leader's: all reports. The helper's shares in them are not encrypted.
        task: A task that has an end, when all of this takes place: all valid reports make one
            batch. Its total fits a frame.

    Returns:
        The collector's total, one whole number an entry; none for the others.

    Raises:
        InputError: If there are too few valid reports for a batch.
    """
    prio = scheme_of(task.vdaf)
    if party.me == roles.collector:
        shares = [await _receive_total(party, prio, name) for name in (roles.leader, roles.helper)]
        return open_total(prio, *shares, names=(roles.leader, roles.helper))
    is_leader = party.me == roles.leader
    file = open_state_file(None, LEDGER, SHARES)
    draw = partial(party.rng.bytes, KEY_BYTES) if is_leader else bytes
    store = ShareStore(file, task, draw)
    counting = (task, prio, store, lambda: float(task.closes or 0))
    if is_leader:
        store.add(uploads)
        number = await _lead(party, Leader(*counting), roles.helper)
    else:
        number = await _follow(party, Helper(*counting, open_plain), roles.leader)
    batch = store.batch(0)
    price = task.epsilon or 0.0
    ledger = open_ledger(file, Budgets("epsilon", price))
    releases = Releases(task, prio, store, ledger, price, noise_of(task), lambda: party.rng)
    share = None if batch is None else releases.release(batch, roles.collector)
    if not isinstance(share, TotalShare):
        raise InputError.because("a new ledger cannot pay for its only batch", field="task")
    party.round(number)
    await party.send(roles.collector, share)
    return None


async def _lead(party: Party, leader: Leader, helper: str) -> int:
    """Verify all reports and fix them as one batch; return the round after that."""
    number = 1
    while (exchange := leader.prepare()) is not None:
        await verify_reports(party, exchange, leader, helper=helper, first_round=number)
        number += 2
    if not leader.is_due():
        said = f"fewer reports are valid than the {leader.fewest()} of the smallest batch"
        raise InputError.because(f"{said}; upload more", field="uploads")
    return await close_batch(party, leader.propose(), leader, helper=helper, first_round=number)


async def _follow(party: Party, helper: Helper, leader: str) -> int:
    """Answer a leader until a batch is fixed; return the round after that."""
    number, answer = 1, None
    while not (isinstance(answer, BatchAnswer) and answer.agreed):
        answer = await answer_leader(party, helper, leader=leader, first_round=number)
        number += 2
    return number


async def _receive_total(party: Party, prio: Prio3, sender: str) -> TotalShare:
    share = await party.receive(TotalShare, sender=sender, due=_LAST_ROUND)
    if share.entries.shape != like_share(prio).entries.shape:
        raise ProtocolViolation(sender, "sent a share of a total of another shape")
    return share


def open_plain(uploads: Sequence[Upload]) -> list[bytes | None]:
    """Return input shares that are not encrypted, in an experiment."""
    return [each.sealed for each in uploads]


def summing_cost(task: Task, reports: int, sealed: int | None = None) -> Forecast:
    """Forecast `sum_verified` of valid reports: two rounds an exchange, and three for the batch.

    There are ⌈n / e⌉ exchanges of two messages each, where e is `exchange_reports`; then two
    messages for the batch and two shares of the total.

    Args:
        sealed: The size in bytes of each share for the helper; by default that of a share that is
            not encrypted.
    """
    prio = scheme_of(task.vdaf)
    sealed = prio.input_share_sizes[HELPER] if sealed is None else sealed
    size = exchange_reports(prio, sealed)
    full, rest = divmod(reports, size)
    exchanges = [(size, full), (rest, 1 if rest else 0)]
    traffic = [_exchange_traffic(prio, each, sealed, times) for each, times in exchanges]
    digests = np.zeros((PARTS, PART_DIGEST_BYTES), dtype=np.uint8)
    proposed = ProposeBatch(number=0, reports=reports, digests=digests, disowned=b"", later=b"")
    share = like_share(prio).model_copy(update={"reports": reports})
    closing = [repeated(1, proposed), repeated(1, BatchAnswer(agreed=True, ids=b""))]
    total = Traffic()
    for each in (*traffic, *closing, repeated(2, share)):
        total = total.plus(each)
    return Forecast(2 * (full + bool(rest)) + 3, total)


def _exchange_traffic(prio: Prio3, reports: int, sealed: int, times: int) -> Traffic:
    """Return the traffic of some exchanges of the same number of valid reports."""

    def rows(width: int) -> NDArray[np.uint8]:
        return np.zeros((reports, width), dtype=np.uint8)

    request = PrepareReports(
        verify_key=bytes(KEY_BYTES),
        ids=rows(ID_BYTES),
        times=np.zeros(reports, dtype=np.uint64),
        public=rows(prio.public_share_size),
        prepared=rows(prio.prep_share_size),
        sealed=bytes(reports * sealed),
        sealed_sizes=np.zeros(reports, dtype=np.uint32),
        disowned=b"",
    )
    answer = PreparedReports(
        verdicts=np.zeros(reports, dtype=np.uint8), replies=rows(prio.prep_message_size)
    )
    return repeated(times, request).plus(repeated(times, answer))
