"""Tasks, keys and reports for tests of the upload, and the totals of what was stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilring.privacy.statefile import open_state_file
from veilring.protocols.prio.algorithm.prio3 import Prio3
from veilring.protocols.prio.client import Recipients, choose_config, make_report
from veilring.protocols.prio.dap import Report, decode_configs
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.sealing import Keyring, make_key
from veilring.protocols.prio.store import SHARES, ShareStore, Upload
from veilring.protocols.prio.task import Task, Vdaf
from veilring.protocols.prio.uploads import Door, unseal_with
from veilring.randomness import Streams

NOW: Final = 1_800_000_000
"""The time of reports, a multiple of the precision of `make_task`."""
PRECISION: Final = 3600
VDAFS: Final = {
    "count": Vdaf(kind="count"),
    "sum": Vdaf(kind="sum", bits=8),
    "sumvec": Vdaf(kind="sumvec", bits=4, length=5, chunk_length=4),
    "histogram": Vdaf(kind="histogram", length=10, chunk_length=3),
}
"""The schemes that clients for browsers have."""
VERIFY_KEY: Final = b"v" * 16


def make_task(vdaf: Vdaf = VDAFS["count"], **given: Any) -> Task:
    """Return a task with some values of its own."""
    usual: dict[str, Any] = {
        "leader": "https://leader.example/",
        "helper": "https://helper.example/dap/",
        "vdaf": vdaf,
        "time_precision": PRECISION,
        "minimum": 100,
    }
    return Task(**usual | given)


class Aggregators:
    """The keys, the door and the store of a leader, and the keys of its helper.

    Args:
        state: The leader's state file; by default in memory.
    """

    def __init__(self, task: Task, state: Path | None = None) -> None:
        self.task, self.prio = task, scheme_of(task.vdaf)
        self.leader = Keyring([make_key(1, b"L" * 32), make_key(9, b"O" * 32, is_retired=True)])
        self.helper = Keyring([make_key(2, b"H" * 32, "ChaCha20-Poly1305")])
        self.door = Door(task, self.prio, self.leader)
        self.store = ShareStore(open_state_file(state, SHARES, new=True), task)
        self._unseal = unseal_with(self.helper, task, self.prio)

    def report(self, measurement: Any, seed: int = 0) -> Report:
        """Return the report of a client."""
        generator = Streams(seed).generator("client")
        return make_report(
            self.task, self.prio, self.configs, measurement, now=NOW, generator=generator
        )

    @property
    def configs(self) -> Recipients:
        """The configurations to which clients seal."""
        rings = (self.leader, self.helper)
        return Recipients(*(choose_config(decode_configs(each.advertised)) for each in rings))

    def stored(self) -> list[Upload]:
        """Return all uploads that the leader has stored."""
        return list(self.store.waiting(1 << 20).values())

    def totals(self) -> tuple[list[int], int]:
        """Return the totals of all stored reports that verify, and the number of the others."""
        uploads = self.stored()
        shares = self._unseal(uploads)
        read = [pair for pair in zip(uploads, shares, strict=True) if pair[1] is not None]
        counted, valid = _verify(self.prio, [u for u, _ in read], [s or b"" for _, s in read])
        return counted, len(uploads) - valid


def _verify(
    prio: Prio3, uploads: Sequence[Upload], helper: Sequence[bytes]
) -> tuple[list[int], int]:
    """Return the totals of the valid reports, and their number."""
    nonces, public = _rows([u.id for u in uploads]), _rows([u.public for u in uploads])
    shares = _rows([u.share for u in uploads]), _rows(helper)
    states = [
        prio.prepare(VERIFY_KEY, number, nonces, public, share)
        for number, share in enumerate(shares)
    ]
    messages, valid = prio.combine(*(each.prep_shares for each in states))
    finished = [prio.finish(each, messages) for each in states]
    for state, (_, ended) in zip(states, finished, strict=True):
        valid = valid & state.valid & ended
    parts = [prio.aggregate(out, valid) for out, _ in finished]
    return prio.unshard(parts, int(valid.sum())), int(valid.sum())


def _rows(parts: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1)
