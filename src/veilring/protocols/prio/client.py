"""A client of a verified sum: one measurement becomes one report."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from veilring.errors import InputError
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.dap import (
    RECIPIENTS,
    REPORT_ID_BYTES,
    HpkeConfig,
    Metadata,
    Report,
    share_aad,
)
from veilring.protocols.prio.hpke import KEY_BYTES
from veilring.protocols.prio.sealing import is_supported, seal_share
from veilring.protocols.prio.task import Task


class Recipients(NamedTuple):
    """The configurations to which the two shares of a report are sealed."""

    leader: HpkeConfig
    helper: HpkeConfig


def choose_config(configs: Iterable[HpkeConfig]) -> HpkeConfig:
    """Return the first configuration of an aggregator that a share can be sealed to.

    Raises:
        InputError: If no share can be sealed to any of them.
    """
    for each in configs:
        if is_supported(each):
            return each
    raise InputError.because(
        "the aggregator advertises no key that can be used here; update this program or the server"
    )


class Sharded(NamedTuple):
    """A report before its shares are sealed."""

    metadata: Metadata
    public_share: bytes
    shares: tuple[bytes, bytes]


def shard_report(
    task: Task, prio: Prio3, measurement: ArrayLike, *, now: float, generator: Generator
) -> Sharded:
    """Return the shares of one measurement (DAP-09, section 4.4.2).

    Args:
        prio: The scheme of the task.
        measurement: A number or a vector, as the scheme takes it.
        now: The time in seconds since 1970 (UTC).
        generator: The source of the report's id and of all its secrets; a cryptographic one, except
            in experiments.

    Raises:
        InputError: If the measurement is out of range.
    """
    report_id = generator.bytes(REPORT_ID_BYTES)
    rand = generator.bytes(prio.rand_size)
    rows = (np.frombuffer(each, np.uint8)[np.newaxis] for each in (report_id, rand))
    public, (leader, helper) = prio.shard(np.asarray(measurement)[np.newaxis], *rows)
    metadata = Metadata(report_id, int(now) // task.time_precision * task.time_precision)
    return Sharded(metadata, public[0].tobytes(), (leader[0].tobytes(), helper[0].tobytes()))


def seal_report(
    task: Task, sharded: Sharded, recipients: Recipients, generator: Generator
) -> Report:
    """Return a report to upload.

    A report that is sealed again, to other keys, is the same report: a helper counts one of them.
    """
    metadata, public_share, shares = sharded
    aad = share_aad(task.task_id, metadata, public_share)
    leader, helper = (
        seal_share(config, role, aad, share, ephemeral=generator.bytes(KEY_BYTES))
        for config, role, share in zip(recipients, RECIPIENTS, shares, strict=True)
    )
    return Report(metadata, public_share, leader, helper)


def make_report(
    task: Task,
    prio: Prio3,
    recipients: Recipients,
    measurement: ArrayLike,
    *,
    now: float,
    generator: Generator,
) -> Report:
    """Return the report of one measurement: see `shard_report`."""
    sharded = shard_report(task, prio, measurement, now=now, generator=generator)
    return seal_report(task, sharded, recipients, generator)
