"""Planted mistakes: is each found, by which audit, after how many worlds and how many seconds?

Each is a change of one function. An audit that passes them by is no audit, so this is how the
audits themselves are tested: `python -m benchmarks --only mistakes`. Some are in the test suite.
"""

import asyncio
import itertools
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.auditing import (
    TWO_SUMS,
    Audit,
    accounted,
    audited,
    digests_are_compared,
    explored,
    forecast,
    hidden,
    lied,
    noise_is_planned,
    ring_lies,
    stored,
)
from benchmarks.hiding import SUBJECTS
from benchmarks.measurement import Bound, Measurement
from benchmarks.strangers import PLANTED, always
from veilring import RankSearch, Release
from veilring.errors import ProtocolViolation, VeilringError
from veilring.nodes.party import Party, broadcast
from veilring.nodes.session import Session
from veilring.protocols.masks import KEY_BYTES
from veilring.protocols.ring.roles import SumShare
from veilring.testing.auditing import check_answers
from veilring.testing.auditing.views import check_comparison

_FOLDER: Final = re.compile(r"/\S*veilring-store-\S*")
_SAID_MAX: Final = 110


class Found(NamedTuple):
    """The way in which a mistake was found."""

    worlds: int
    """The number of worlds, lies or checks that it took."""
    sentence: str
    seconds: float


@dataclass(frozen=True)
class Mistake:
    """A function that is not as it should be.

    Attributes:
        place: The path of the function, below `veilring` or `benchmarks`.
        change: Makes the mistaken function of the right one.
        quick: Whether it is in the test suite.
    """

    name: str
    place: str
    change: Callable[[Any], Any]
    audit: Audit
    quick: bool = False


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Have a mistake within the block."""
    place = mistake.place
    if not place.startswith("benchmarks."):
        place = f"veilring.{place}"
    home, _, name = place.rpartition(".")
    right = getattr(pkgutil.resolve_name(home), name)
    with mock.patch(place, mistake.change(right)):
        yield


def find(mistake: Mistake) -> Found | None:
    """Plant a mistake and audit; none if it passes."""
    with planted(mistake):
        began = time.perf_counter()
        found = mistake.audit()
        seconds = time.perf_counter() - began
    return None if found is None else Found(*found, seconds)


def after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what changes the result of a function."""
    return lambda right: lambda *given, **named: change(right(*given, **named))


def nothing(_right: object) -> Callable[..., None]:
    """Return a function that does nothing."""
    return lambda *_given, **_named: None


def _tied_words_unmasked(right: Callable[..., Any]) -> Callable[..., Any]:
    def put(arrays: Any, stream: Any, add: Any) -> None:
        if len(arrays) == 1:
            right(arrays, stream, add)
        else:
            right(arrays[:1], stream, add)

    return put


def _later_if_near(right: Callable[..., Any]) -> Callable[..., Any]:
    async def add(party: Party, own: Any, **public: Any) -> Any:
        if any(array.any() for array in own):
            await asyncio.sleep(0.001)
        return await right(party, own, **public)

    return add


def _repeated(right: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[int, tuple[Any, Any]] = {}  # holds each generator, so that no id is used again

    def share(noise: Any, rng: Any) -> Any:
        _, rng.bit_generator.state = kept.setdefault(id(rng), (rng, rng.bit_generator.state))
        return right(noise, rng)

    return share


def _every_third(right: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function of which each third result, that of the last of three, is changed."""
    calls = itertools.count(1)
    return lambda *given: right(*given) if next(calls) % 3 else change(right(*given))


def _plus_one(found: Any) -> Any:
    return found + 1


def _wrong_column(array: Any) -> Any:
    return np.roll(array, 1, axis=-1)


def _doubled_sum(right: Callable[..., Any]) -> Callable[..., Any]:
    async def add(party: Party, own: Any, **public: Any) -> Any:
        return await right(party, 2 * own if party.me == party.parties[-1] else own, **public)

    return add


def _unsigned(right: Callable[..., Any], keys: Any, arrays: Any, digest: bytes) -> Any:
    with mock.patch.object(keys, "_me", ""):
        return right(keys, arrays, digest)


def _one_mask(right: Callable[..., Any], keys: Any, arrays: Any) -> Any:
    with mock.patch.object(keys, "_sums", 0):
        return right(keys, arrays, b"")


def _key_of_names(_session: bytes, own: tuple[str, Any], peer: tuple[str, Any]) -> bytes:
    return "".join(sorted([own[0], peer[0]])).encode().ljust(KEY_BYTES)


def _without_a_round(right: Callable[..., Any]) -> Callable[..., Any]:
    def turns(party: Party, own: Any, *, parameters: Any, **public: Any) -> Any:
        fewer = replace(parameters, rounds=parameters.rounds - 1)
        return right(party, own, parameters=fewer, **public)

    return turns


async def add_without_the_lost(party: Party, words: Any, _first_round: int = 1) -> Any:
    """Add up by shares to all, and leave out parties that were not heard in time."""
    await broadcast(party, SumShare(values=words))
    total = words
    for peer in party.peers:
        try:
            async with asyncio.timeout(1.0):
                total = total + (await party.receive(SumShare, sender=peer)).values
        except (TimeoutError, VeilringError):
            continue
    return total


async def add_what_is_sent_again(party: Party, words: Any, _first_round: int = 1) -> Any:
    """Add up by shares to all, again after a slow answer, and count all that arrive."""
    await broadcast(party, SumShare(values=words))
    hearing = [asyncio.create_task(_hear_all(party, peer)) for peer in party.peers]
    try:
        _, slow = await asyncio.wait(hearing, timeout=0.5)
        if slow:
            await broadcast(party, SumShare(values=words))
        return words + sum([await task for task in hearing])
    finally:
        for task in hearing:
            task.cancel()


async def _hear_all(party: Party, peer: str) -> Any:
    total = (await party.receive(SumShare, sender=peer)).values
    try:
        async with asyncio.timeout(1.0):
            while True:
                total = total + (await party.receive(SumShare, sender=peer)).values
    except TimeoutError:
        return total


def _read_backwards(right: Callable[..., Any]) -> Callable[..., Any]:
    async def add(sums: Any, own: Any) -> Any:
        total = await right(sums, own)
        last = sums._party.me == sums._party.parties[-1]
        return total._replace(sums=total.sums[::-1].copy()) if last else total

    return add


def _awaited(session: Session) -> str:
    """Return the peer whose message a role awaits, if it does."""
    waits = session.standing().waits
    return next((each.sender for each in waits if each.sender in session.parties), "")


def _accused(member: str) -> VeilringError:
    return ProtocolViolation(member, "received other commitments than we did")


async def _unbound(party: Party, message_type: Any, *, sender: str, public: Any, due: int) -> Any:
    return await party.receive(message_type, sender=sender, due=due)


def _overwriting(ledger: Any, charged: Any) -> None:
    ledger._store.connection.executemany(
        "INSERT INTO analysts VALUES (?, 250000000000, ?) ON CONFLICT (name)"
        " DO UPDATE SET spent = excluded.spent, answers = answers + excluded.answers",
        list(charged.items()),
    )


RING: Final = explored()
SEARCH: Final = explored("protocol.name=rank-search", "protocol.k=5")
RELEASE: Final = explored("protocol.name=release")
SHARED: Final = explored("protocol.name=rank-search", "protocol.k=5", "protocol.reveal=votes")
LABEL: Final = explored("protocol.name=rank-search", "protocol.k=5", "protocol.reveal=label")
_R: Final = "protocols.ring"
_S: Final = "protocols.ranksearch"
_L: Final = "privacy.ledger.Ledger"
_F: Final = "privacy.statefile"
_PLACES: Final = "privacy.budgets.Places"
_LDP: Final = "protocols.ldp.store.sqlite.SqliteStore"


def _found_by(audit: Audit, *planted: tuple[Any, ...]) -> Iterator[Mistake]:
    """Yield mistakes that one audit is to find: name, place, change, and perhaps `quick`."""
    for name, place, change, *quick in planted:
        yield Mistake(name, place, change, audit, *quick)


MISTAKES: Final = (
    *_found_by(
        RING,
        (
            "class numbers are reversed",
            f"{_R}.roles.decide_labels",
            after(lambda found: 2 - found),
            True,
        ),
        (
            "ties go to the last class",
            f"{_R}.roles.decide_labels",
            lambda right: lambda votes: votes.shape[1] - 1 - votes[:, ::-1].argmax(axis=1),
        ),
        ("votes count for the next class", f"{_R}.roles.local_votes", after(_wrong_column)),
        ("decoded sums are off by one", f"{_R}.algorithm.sums.FixedPoint.decode", after(_plus_one)),
        (
            "a step of PP-TopK returns the old vector",
            f"{_R}.roles.topk_step",
            lambda right: lambda G, V, inserted, *rest: (G, inserted),
        ),
        ("the last party's votes count twice", f"{_R}.roles.sum_words", _doubled_sum),
        (
            "messages go round the ring backwards",
            "nodes.ring.Ring.successor",
            lambda right: lambda ring, party: ring.predecessor(party),
        ),
        ("a sum omits late parties", f"{_R}.roles._sum_by_shares", always(add_without_the_lost)),
        (
            "shares that are sent again count twice",
            f"{_R}.roles._sum_by_shares",
            always(add_what_is_sent_again),
        ),
    ),
    *_found_by(
        SEARCH,
        (
            "both parties of a pair add the mask",
            "protocols.masks.PairwiseKeys.mask",
            lambda right: lambda keys, arrays, digest: _unsigned(right, keys, arrays, digest),
        ),
        (
            "masks are not bound to the sum",
            "protocols.masks.PairwiseKeys.mask",
            lambda right: lambda keys, arrays, digest: right(keys, arrays, keys._me.encode()),
        ),
        (
            "labels of the nearest rows are reversed",
            f"{_S}.roles.nearest_rows",
            after(lambda near: type(near)(near.distances, 2 - near.labels)),
        ),
        ("counts are off by one", f"{_S}.algorithm.search.clipped_counts", after(_plus_one)),
        (
            "counts belong to another threshold",
            f"{_S}.roles.clipped_counts",
            after(lambda counts: np.roll(counts, 1)),
        ),
        (
            "counts are not clipped",
            f"{_S}.roles.nearest_rows",
            lambda right: lambda queries, rows, k: right(queries, rows, len(rows)),
        ),
    ),
    *_found_by(
        SHARED,
        (
            "shares are interpolated at the wrong points",
            f"{_S}.algorithm.shares.lagrange_weights",
            lambda right: lambda points, p: right([point + 1 for point in points], p),
        ),
        ("masks of products do not add up to 0", f"{_S}.shared.zero_sums", after(_plus_one)),
    ),
    *_found_by(
        forecast(),
        ("a round of PP-TopK is omitted", f"{_R}.roles.pp_topk", _without_a_round),
        ("sums begin one round late", f"{_R}.roles._first_sum_round", after(_plus_one), True),
    ),
    *_found_by(
        RELEASE, ("one party reverses the total", "protocols.release.roles._add", _read_backwards)
    ),
    *_found_by(
        noise_is_planned,
        (
            "noise is omitted",
            "protocols.noisyvotes.roles.noisy_counts",
            lambda right: lambda counts, *_given: counts,
        ),
        (
            "noise is added twice",
            "protocols.noisyvotes.roles.noisy_counts",
            lambda right: lambda counts, *given: right(right(counts, *given), *given),
        ),
    ),
    *_found_by(
        audited(Release, check_answers),
        (
            "one party halves its share of the noise",
            "protocols.release.algorithm.noise.SumNoise.share",
            lambda right: _every_third(right, lambda share: share // 2),
        ),
        (
            "one party adds no noise",
            "protocols.release.algorithm.noise.SumNoise.share",
            lambda right: _every_third(right, np.zeros_like),
        ),
    ),
    *_found_by(
        audited(partial(Release, statistic="means"), check_comparison, number=0),
        (
            "the noise of a second sum repeats that of the first",
            "protocols.release.algorithm.noise.SumNoise.share",
            _repeated,
        ),
    ),
    *_found_by(
        audited(partial(RankSearch, k=2), check_comparison, number=1),
        ("words of tied queries are not masked", "protocols.masks.put_mask", _tied_words_unmasked),
    ),
    *_found_by(
        audited(partial(RankSearch, k=2), check_comparison, number=0),
        (
            "a party with rows near a query answers a millisecond later",
            "protocols.masks.masked_sums",
            _later_if_near,
        ),
    ),
    *_found_by(
        hidden(SUBJECTS["shares to all"]),
        (
            "two parties share a seed",
            "randomness.Streams.generator",
            lambda right: (
                lambda streams, *path: right(
                    streams, *("ben" if part == "cy" else part for part in path)
                )
            ),
        ),
    ),
    *_found_by(
        hidden(TWO_SUMS),
        (
            "all sums of a session share a mask",
            "protocols.masks.PairwiseKeys.mask",
            lambda right: lambda keys, arrays, _digest: _one_mask(right, keys, arrays),
        ),
    ),
    *_found_by(
        hidden(SUBJECTS["masked sums"]),
        ("all sessions share a mask", "protocols.masks.derive_secret", always(_key_of_names)),
    ),
    *_found_by(
        lied(ring_lies),
        (
            "senders are not checked",
            "nodes.session.Session.deliver",
            lambda right: (
                lambda session, sender, envelope, frame: right(
                    session, _awaited(session) or sender, envelope, frame
                )
            ),
        ),
        ("revealed nonces are not checked", "nodes.ring._check_reveal", nothing, True),
        (
            "contradictory commitments are blamed on one party",
            "nodes.ring._inconsistent_reports",
            lambda right: lambda _party, member, _told_by: _accused(member),
            True,
        ),
    ),
    *_found_by(
        digests_are_compared,
        (
            "digests of sums are not compared",
            "protocols.masks.receive_bound",
            always(_unbound),
            True,
        ),
    ),
    *_found_by(
        stored("ledger"),
        ("charges are not written", f"{_L}._write_analysts", nothing, True),
        ("stored answers are not found", f"{_L}._find", nothing, True),
        ("each charge overwrites the last one", f"{_L}._write_analysts", always(_overwriting)),
        ("the witness is not written", f"{_F}.Witness.write", nothing),
        ("all rows have the same hash", f"{_F}.hash_row", lambda right: lambda _values: 0),
        ("the seal is not compared", f"{_F}._require_sealed", nothing),
        ("transactions do not record their state", f"{_F}.StateFile._keep_state", nothing),
    ),
    *_found_by(
        stored("collector"),
        ("running sums are not written", f"{_LDP}._write", nothing, True),
        (
            "the last report of a group is dropped",
            f"{_LDP}._insert",
            lambda right: lambda store, question, some: right(store, question, some.at(slice(4))),
            True,
        ),
    ),
    *_found_by(
        stored("collector", ("bit flip",)),
        ("stored reports are not checked", f"{_LDP}._require_whole", nothing),
    ),
    *_found_by(
        stored("state"),
        ("rows are written nowhere", f"{_PLACES}.put", nothing, True),
        ("forgotten rows are not erased", f"{_PLACES}.erase", nothing),
    ),
    *_found_by(
        accounted,
        (
            "budgets are unlimited",
            "privacy.ledger.units_left",
            lambda right: lambda _limit, _spent: 10**18,
            True,
        ),
        ("a repeated request is charged twice", f"{_L}._find", nothing, True),
        (
            "records pay nothing",
            "privacy.budgets.Records.pay",
            lambda right: lambda _records, _charge: True,
            True,
        ),
        (
            "amounts are rounded down",
            "privacy.ledger.to_units",
            lambda right: (
                lambda amounts, **_named: np.int64(np.floor(np.asarray(amounts) * 10**12))
            ),
            True,
        ),
        (
            "analysts share one budget",
            f"{_L}._left",
            lambda right: lambda ledger, analyst: right(ledger, "a"),
            True,
        ),
    ),
    *chain.from_iterable(_found_by(audit, *planted) for audit, planted in PLANTED.items()),
)


def measure(*, quick: bool) -> list[Measurement]:
    """Plant each mistake, and measure how long it takes to find."""
    print("| bug | worlds | seconds | finding |\n| --- | --- | --- | --- |")
    found = 0
    for each in MISTAKES:
        if each.quick or not quick:
            how = find(each)
            found += how is not None
            print(_line(each, how), flush=True)
    planted = sum(each.quick or not quick for each in MISTAKES)
    share = found / planted
    bound = Bound("at least", 1.0)
    return [Measurement("mistakes found", "share", (share,), bound, f"{found} of {planted}")]


def _line(mistake: Mistake, found: Found | None) -> str:
    if found is None:
        return f"| {mistake.name} | | | NOT FOUND |"
    said = _FOLDER.sub("…", found.sentence)[:_SAID_MAX].replace("|", "/")
    return f"| {mistake.name} | {found.worlds:,} | {found.seconds:.1f} | {said} |"
