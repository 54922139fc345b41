"""The opening of uploaded reports at both aggregators, and their storage at the leader.

A leader opens a report at its door: a report that is sealed to another key, or is not of its task's
sizes, is refused while its client still listens. Its proof is verified later, with the helper.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from veilring.errors import FrameError
from veilring.nodes.service import Offload
from veilring.protocols.intake import GroupCommit
from veilring.protocols.prio.aggregator import Unseal
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.dap import (
    HELPER,
    LEADER,
    REPORT_ID_BYTES,
    Ciphertext,
    Metadata,
    Report,
)
from veilring.protocols.prio.hpke import KEY_BYTES
from veilring.protocols.prio.sealing import Keyring, Problem, ReportRefused, sealed_bytes
from veilring.protocols.prio.store import Added, Upload
from veilring.protocols.prio.task import CLOCK_SKEW_SECONDS, Task

_log = logging.getLogger("veilring.leader")


AddUploads = Callable[[Sequence[Upload]], Sequence[Added]]
"""Stores uploads in one transaction; once it returns, the new ones are durable. It raises
`StoreFailed` if none of them is stored."""


@dataclass
class Door:
    """Opens uploaded reports to one task.

    Attributes:
        prio: The scheme of the task.
        keys: The leader's keys, which may be renewed while reports arrive.
    """

    task: Task
    prio: Prio3
    keys: Keyring

    @property
    def report_bytes(self) -> int:
        """The size of a report without extensions: all reports to a task have the same."""
        sealed = (
            Ciphertext(0, bytes(KEY_BYTES), bytes(sealed_bytes(size)))
            for size in self.prio.input_share_sizes
        )
        public_share = bytes(self.prio.public_share_size)
        return len(Report(Metadata(bytes(REPORT_ID_BYTES), 0), public_share, *sealed).encode())

    def open(self, message: bytes, now: float) -> Upload:
        """Return the report of a message, with the leader's share opened.

        Args:
            now: The time in seconds since 1970 (UTC).

        Raises:
            ReportRefused: If it cannot be accepted, now or ever.
        """
        try:
            report = Report.decode(message)
        except FrameError as error:
            detail = f"the report is malformed: {error}"
            raise ReportRefused(Problem.INVALID_MESSAGE, detail) from None
        metadata, public_share = report.metadata, report.public_share
        self._check_time(metadata.time, now)
        leader_bytes, helper_bytes = self.prio.input_share_sizes
        _check_size("the public share", public_share, self.prio.public_share_size)
        _check_sealed("leader", report.leader, leader_bytes)
        _check_sealed("helper", report.helper, helper_bytes)
        share = self.keys.open(LEADER, self.task.task_id, metadata, public_share, report.leader)
        _check_size("the leader's share", share, leader_bytes)
        sealed = report.helper.encode()
        return Upload(metadata.report_id, metadata.time, public_share, share, sealed)

    def _check_time(self, time: int, now: float) -> None:
        task = self.task
        if time % task.time_precision:
            detail = f"the time {time} is not a multiple of {task.time_precision} seconds"
            raise ReportRefused(Problem.INVALID_MESSAGE, detail)
        if task.closes is not None and max(time, now) >= task.closes:
            detail = f"the task takes no report from the time {task.closes} on"
            raise ReportRefused(Problem.REPORT_REJECTED, detail)
        if time > now + CLOCK_SKEW_SECONDS:
            detail = f"the time {time} is more than {CLOCK_SKEW_SECONDS} s ahead; upload it later"
            raise ReportRefused(Problem.REPORT_TOO_EARLY, detail)


def _check_sealed(whose: str, sealed: Ciphertext, share_bytes: int) -> None:
    _check_size(f"the encapsulated key for the {whose}", sealed.enc, KEY_BYTES)
    _check_size(f"the sealed share of the {whose}", sealed.payload, sealed_bytes(share_bytes))


def _check_size(what: str, value: bytes, due: int) -> None:
    if len(value) != due:
        detail = f"{what} has {len(value)} bytes; in this task it has {due}"
        raise ReportRefused(Problem.INVALID_MESSAGE, detail)


def unseal_with(keys: Keyring, task: Task, prio: Prio3) -> Unseal:
    """Return the function with which a helper opens its shares of uploads."""

    def unseal(uploads: Sequence[Upload]) -> list[bytes | None]:
        return [_unseal(keys, task, prio, each) for each in uploads]

    return unseal


def _unseal(keys: Keyring, task: Task, prio: Prio3, upload: Upload) -> bytes | None:
    metadata = Metadata(upload.id, upload.time)
    try:
        sealed = Ciphertext.decode(upload.sealed)
        share = keys.open(HELPER, task.task_id, metadata, upload.public, sealed)
    except (FrameError, ReportRefused):
        return None
    _, share_bytes = prio.input_share_sizes
    return share if len(share) == share_bytes else None


class Intake(GroupCommit[Upload, Added]):
    """Takes uploads while its context is entered.

    Args:
        add: See `ShareStore.add`.
        now: A clock: the seconds since 1970 (UTC).
        offload: The executor of transactions; by default a thread owned by the intake.
    """

    def __init__(
        self, door: Door, add: AddUploads, now: Callable[[], float], offload: Offload | None = None
    ) -> None:
        super().__init__(add, _log, offload)
        self.door, self._now = door, now

    async def take(self, message: bytes) -> None:
        """Store an uploaded report. Once this returns, the report is durable.

        A report that is stored already is accepted again, and counts once.

        Raises:
            ReportRefused: If it cannot be accepted, such as another report with the same id.
            StoreFailed: If it could not be stored; the client may send it again.
        """
        if await self.put(self.door.open(message, self._now())) == "different":
            detail = "another report has the same id; draw a new id for each report"
            raise ReportRefused(Problem.REPORT_REJECTED, detail)
