"""Hostile uploads: each kind of forged request, with the refusal that it deserves.

`python -m tests.deployment.hostile_uploads` sends 4,000 of them among honest reports, and checks
the answers, the memory of the server and the totals.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from aiohttp import ClientSession
from tests.deployment.uploading import PATH, Serving, serving
from tests.protocols.prio.reports import NOW, PRECISION, VDAFS, Aggregators

from veilring.deployment.surveys.upload import URN
from veilring.protocols.prio.dap import (
    HELPER,
    LEADER,
    RECIPIENTS,
    REPORT_ID_BYTES,
    REPORT_MEDIA_TYPE,
    Ciphertext,
    Extension,
    HpkeConfig,
    Metadata,
    PlaintextShare,
    Recipient,
    Report,
    share_aad,
    share_info,
)
from veilring.protocols.prio.hpke import seal
from veilring.protocols.prio.sealing import Problem, make_key
from veilring.protocols.prio.task import name_task

UPLOADS: Final = 4_000
AT_ONCE: Final = 100
"""The number of valid reports that are made at once, which is faster than one by one."""
MEMORY_MAX: Final = 9 << 20
"""The bytes by which the process may grow, with SQLite's cache and the allocator's slack.

More of it would be used if the server kept 2.6 KB of each upload.
"""
CLOSES: Final = NOW + 10 * PRECISION
_EXTENSION: Final = Extension(0, b"")
_EXTENSION_BYTES: Final = len(_EXTENSION.encode())


@dataclass
class Forger:
    """A client that builds reports by hand, each with an id of its own."""

    parties: Aggregators
    rng: random.Random
    _made: list[tuple[bytes, ...]] = field(default_factory=list)

    def shares(self) -> tuple[bytes, bytes, tuple[bytes, ...]]:
        """Return the id, the public share and both input shares of a valid report of 1."""
        if not self._made:
            self._made = self._make(AT_ONCE)
        report_id, public_share, *shares = self._made.pop()
        return report_id, public_share, tuple(shares)

    def _make(self, number: int) -> list[tuple[bytes, ...]]:
        prio = self.parties.prio
        nonces, rand = (
            np.frombuffer(self.rng.randbytes(number * size), np.uint8).reshape(number, size)
            for size in (REPORT_ID_BYTES, prio.rand_size)
        )
        public, shares = prio.shard(np.ones(number, np.int64), nonces, rand)
        rows = zip(nonces, public, *shares, strict=True)
        return [tuple(part.tobytes() for part in row) for row in rows]

    def report(
        self,
        *,
        time: int = NOW,
        task_id: bytes | None = None,
        plaintexts: Callable[[int, bytes], bytes] = lambda _, share: PlaintextShare(share).encode(),
        configs: tuple[HpkeConfig, HpkeConfig] | None = None,
        roles: tuple[Recipient, Recipient] = RECIPIENTS,
    ) -> Report:
        """Return a report with some forged parts.

        Args:
            plaintexts: Maps a recipient and its share to the sealed plaintext.
            roles: The recipients named in the encryption.
        """
        report_id, public_share, shares = self.shares()
        metadata = Metadata(report_id, time)
        aad = share_aad(task_id or self.parties.task.task_id, metadata, public_share)
        sealed = []
        for config, to, role, share in zip(
            configs or self.parties.configs, RECIPIENTS, roles, shares, strict=True
        ):
            info, plaintext = share_info(role), plaintexts(to, share)
            ephemeral, aead = self.rng.randbytes(32), config.aead_id
            parts = seal(config.public_key, info, aad, plaintext, aead=aead, ephemeral=ephemeral)
            sealed.append(Ciphertext(config.config_id, *parts))
        return Report(metadata, public_share, *sealed)


@dataclass
class Forged:
    """A request."""

    body: bytes
    method: str = "PUT"
    path: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": REPORT_MEDIA_TYPE})
    chunked: bool = False


@dataclass(frozen=True)
class Attack:
    """A kind of hostile upload.

    Attributes:
        make: Builds one.
        status: The answer that it gets.
        problem: The type in its problem document; none for a type without meaning of its own.
    """

    make: Callable[[Forger], Forged | bytes]
    status: int = 400
    problem: Problem | None = None


def _changed(part: Callable[[Forger, Report], Report]) -> Callable[[Forger], bytes]:
    return lambda forger: part(forger, forger.report()).encode()


def _flipped(forger: Forger, value: bytes) -> bytes:
    changed = bytearray(value)
    changed[forger.rng.randrange(len(changed))] ^= 1 << forger.rng.randrange(8)
    return bytes(changed)


def _resealed(to: int, change: Callable[[Forger, bytes], bytes]) -> Callable[[Forger], bytes]:
    """Seal another plaintext to one aggregator."""

    def make(forger: Forger) -> bytes:
        def plaintext(recipient: int, share: bytes) -> bytes:
            return change(forger, share) if recipient == to else PlaintextShare(share).encode()

        return forger.report(plaintexts=plaintext).encode()

    return make


def _noise_share(forger: Forger, share: bytes) -> bytes:
    return PlaintextShare(forger.rng.randbytes(len(share))).encode()


def _flipped_share(forger: Forger, share: bytes) -> bytes:
    return PlaintextShare(_flipped(forger, share)).encode()


def _extended(_forger: Forger, share: bytes) -> bytes:
    """Return a plaintext with an extension and of the usual size: its share is too short."""
    return PlaintextShare(share[_EXTENSION_BYTES:], (_EXTENSION,)).encode()


def _noise_plaintext(forger: Forger, share: bytes) -> bytes:
    return forger.rng.randbytes(len(PlaintextShare(share).encode()))


def _other_key(forger: Forger) -> bytes:
    """Seal to the leader's number, but not to its key."""
    leader, helper = forger.parties.configs
    other = make_key(leader.config_id, forger.rng.randbytes(32)).config
    return forger.report(configs=(other, helper)).encode()


def _unknown_key(forger: Forger) -> bytes:
    leader, helper = forger.parties.configs
    number = forger.rng.choice([each for each in range(256) if each not in {1, 9}])
    return forger.report(configs=(replace(leader, config_id=number), helper)).encode()


def _at(time: Callable[[Forger], int]) -> Callable[[Forger], bytes]:
    return lambda forger: forger.report(time=time(forger)).encode()


def _sent(**given: Any) -> Callable[[Forger], Forged]:
    return lambda forger: Forged(forger.report().encode(), **given)


def _named(name: Callable[[Forger], str]) -> Callable[[Forger], Forged]:
    return lambda forger: Forged(
        forger.report().encode(), path=f"{PATH}tasks/{name(forger)}/reports"
    )


MALFORMED, REJECTED = Problem.INVALID_MESSAGE, Problem.REPORT_REJECTED
ATTACKS: Final = {
    "empty": Attack(lambda _: b"", problem=MALFORMED),
    "noise": Attack(
        lambda f: f.rng.randbytes(f.rng.randrange(1, f.parties.door.report_bytes)),
        problem=MALFORMED,
    ),
    "cut": Attack(
        lambda f: f.report().encode()[: f.rng.randrange(f.parties.door.report_bytes)],
        problem=MALFORMED,
    ),
    "longer": Attack(lambda f: f.report().encode() + b"\0", 413),
    "huge": Attack(lambda f: f.rng.randbytes(100_000), 413),
    "huge in chunks": Attack(lambda f: Forged(f.rng.randbytes(100_000), chunked=True), 413),
    "id": Attack(
        _changed(
            lambda f, r: replace(r, metadata=replace(r.metadata, report_id=f.rng.randbytes(16)))
        ),
        problem=REJECTED,
    ),
    "public share": Attack(
        _changed(lambda f, r: replace(r, public_share=_flipped(f, r.public_share))),
        problem=REJECTED,
    ),
    "public share missing": Attack(
        _changed(lambda _, r: replace(r, public_share=b"")), problem=MALFORMED
    ),
    "leader payload": Attack(
        _changed(
            lambda f, r: replace(r, leader=replace(r.leader, payload=_flipped(f, r.leader.payload)))
        ),
        problem=REJECTED,
    ),
    "leader key": Attack(
        _changed(lambda f, r: replace(r, leader=replace(r.leader, enc=_flipped(f, r.leader.enc)))),
        problem=REJECTED,
    ),
    "worthless key": Attack(
        _changed(lambda _, r: replace(r, leader=replace(r.leader, enc=bytes(32)))), problem=REJECTED
    ),
    "short key": Attack(
        _changed(lambda _, r: replace(r, leader=replace(r.leader, enc=b"short"))), problem=MALFORMED
    ),
    "short helper payload": Attack(
        _changed(lambda _, r: replace(r, helper=replace(r.helper, payload=b"short"))),
        problem=MALFORMED,
    ),
    "retired number": Attack(
        _changed(lambda _, r: replace(r, leader=replace(r.leader, config_id=9))), problem=REJECTED
    ),
    "another key": Attack(_other_key, problem=REJECTED),
    "unknown key": Attack(_unknown_key, problem=Problem.OUTDATED_CONFIG),
    "another task": Attack(
        lambda f: f.report(task_id=f.rng.randbytes(32)).encode(), problem=REJECTED
    ),
    "another role": Attack(lambda f: f.report(roles=(HELPER, LEADER)).encode(), problem=REJECTED),
    "swapped": Attack(
        _changed(lambda _, r: replace(r, leader=r.helper, helper=r.leader)), problem=MALFORMED
    ),
    "extension": Attack(_resealed(LEADER, _extended), problem=MALFORMED),
    "noise inside": Attack(_resealed(LEADER, _noise_plaintext), problem=MALFORMED),
    "exact time": Attack(_at(lambda f: NOW - f.rng.randrange(1, PRECISION)), problem=MALFORMED),
    "next hour": Attack(
        _at(lambda f: NOW + f.rng.randrange(1, 10) * PRECISION), problem=Problem.REPORT_TOO_EARLY
    ),
    "after the end": Attack(
        _at(lambda f: CLOSES + f.rng.randrange(10) * PRECISION), problem=REJECTED
    ),
    "end of time": Attack(
        _at(lambda _: ((1 << 64) - 1) // PRECISION * PRECISION), problem=REJECTED
    ),
    "no task": Attack(_named(lambda _: "x"), problem=Problem.UNRECOGNIZED_TASK),
    "unknown task": Attack(
        _named(lambda f: name_task(f.rng.randbytes(32))), problem=Problem.UNRECOGNIZED_TASK
    ),
    "padded task": Attack(
        _named(lambda f: f"{f.parties.task.name}="), problem=Problem.UNRECOGNIZED_TASK
    ),
    "elsewhere": Attack(_sent(path=f"{PATH}elsewhere"), 404),
    "above": Attack(_sent(path="/hpke_config"), 404),
    "posted": Attack(_sent(method="POST"), 405),
    "deleted": Attack(_sent(method="DELETE"), 405),
    "untyped": Attack(_sent(headers={"Content-Type": "text/plain"}), 415),
    "compressed": Attack(
        _sent(headers={"Content-Type": REPORT_MEDIA_TYPE, "Content-Encoding": "gzip"}), 415
    ),
}
"""The requests that the leader refuses at its door."""

HIDDEN: Final = {
    "helper payload": _changed(
        lambda f, r: replace(r, helper=replace(r.helper, payload=_flipped(f, r.helper.payload)))
    ),
    "helper key": _changed(
        lambda f, r: replace(r, helper=replace(r.helper, enc=_flipped(f, r.helper.enc)))
    ),
    "helper number": _changed(lambda _, r: replace(r, helper=replace(r.helper, config_id=77))),
    "helper extension": _resealed(HELPER, _extended),
    "helper noise inside": _resealed(HELPER, _noise_plaintext),
    "helper share": _resealed(HELPER, _flipped_share),
    "leader share": _resealed(LEADER, _flipped_share),
    "leader noise": _resealed(LEADER, _noise_share),
}
"""Reports that the leader accepts, and that fail once the helper sees them."""


async def send(session: ClientSession, site: Serving, forged: Forged | bytes) -> tuple[int, Any]:
    """Send a request; return its status and its problem document."""
    given = Forged(forged) if isinstance(forged, bytes) else forged
    url = site.upload_url
    if given.path:
        url = f"http://127.0.0.1:{site.leader.port}{given.path}"

    async def pieces() -> Any:
        yield given.body

    body = pieces() if given.chunked else given.body
    async with session.request(given.method, url, data=body, headers=given.headers) as response:
        document = await response.json(content_type=None) if response.status >= 400 else {}
        assert response.status < 400 or response.content_type == "application/problem+json"
        return response.status, document


def check(attack: Attack, status: int, document: Any) -> None:
    """Check that a hostile upload got the refusal that it deserves."""
    assert status == attack.status == document["status"], (status, document)
    kind = "about:blank" if attack.problem is None else f"{URN}{attack.problem.value}"
    assert document["type"] == kind, document


async def attack_server(site: Serving, uploads: int, seed: int) -> Counter[str]:
    """Send hostile uploads of all kinds among honest ones; return the number of each answer."""
    rng = random.Random(seed)
    forger, answers = Forger(site.parties, rng), Counter[str]()
    process, before, total = psutil.Process(), 0, 0
    kinds = [*ATTACKS, *HIDDEN]
    async with ClientSession() as session:
        for number in range(uploads):
            if number == uploads // 10:  # after all modules, caches and arenas are in use
                before = process.memory_info().rss
            name = kinds[number % len(kinds)]
            if name in ATTACKS:
                status, document = await send(session, site, ATTACKS[name].make(forger))
                check(ATTACKS[name], status, document)
                answers[f"{status} {document['type']}"] += 1
            else:
                status, _ = await send(session, site, HIDDEN[name](forger))
                assert status == 201, name
                answers["accepted, and refused with the helper"] += 1
            if number % 50 == 0:
                report = forger.report().encode()
                for _ in range(2):
                    assert (await send(session, site, report))[0] == 201
                total += 1
    grown = process.memory_info().rss - before
    assert grown < MEMORY_MAX, f"the server has grown by {grown:,} bytes"
    answers["bytes grown"] = grown
    totals, refused = site.parties.totals()
    assert sum(totals) == totals[1] == total, (totals, total)
    assert refused == answers["accepted, and refused with the helper"]
    answers["honest reports, each sent twice"] = total
    return answers


async def run(uploads: int, seed: int, state: Path | None = None) -> Counter[str]:
    """Serve a task, and attack it.

    Args:
        state: The leader's state file; by default in memory.
    """
    async with serving(VDAFS["histogram"], state=state, closes=CLOSES) as site:
        return await attack_server(site, uploads, seed)


def main() -> None:
    """Run the attack, and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=UPLOADS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = asyncio.run(run(given.uploads, given.seed, Path(folder) / "leader.db"))
    for answer, count in sorted(answers.items()):
        sys.stdout.write(f"{count:>10,}  {answer}\n")


if __name__ == "__main__":
    main()
