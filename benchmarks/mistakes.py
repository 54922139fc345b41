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
from benchmarks.strangers import PLANTED
from veilring import RankSearch, Release
from veilring.errors import ProtocolViolation, VeilringError
from veilring.nodes.party import Party, broadcast
from veilring.nodes.session import _Inbox
from veilring.protocols.masks import KEY_BYTES
from veilring.protocols.ring.roles import SumShare
from veilring.testing.auditing.audits import check_answers
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
        name: The mistake, in a few words.
        place: The path of the function, as `unittest.mock.patch` takes it.
        change: Makes the mistaken function of the right one.
        audit: What is to find it.
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
    home, _, name = mistake.place.rpartition(".")
    right = getattr(pkgutil.resolve_name(home), name)
    with mock.patch(mistake.place, mistake.change(right)):
        yield


def find(mistake: Mistake) -> Found | None:
    """Plant a mistake and audit; none if it passes."""
    with planted(mistake):
        began = time.perf_counter()
        found = mistake.audit()
        seconds = time.perf_counter() - began
    return None if found is None else Found(*found, seconds)


def after(right: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function whose result is changed."""
    return lambda *given, **named: change(right(*given, **named))


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


def _off_by_one(right: Callable[..., Any]) -> Callable[..., Any]:
    return after(right, lambda found: found + 1)


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
_R: Final = "veilring.protocols.ring"
_S: Final = "veilring.protocols.ranksearch"
_L: Final = "veilring.privacy.ledger.Ledger"
_F: Final = "veilring.privacy.statefile"
_PLACES: Final = "veilring.privacy.budgets.Places"
_LDP: Final = "veilring.protocols.ldp.store.sqlite.SqliteStore"

MISTAKES: Final = (
    # Protocols: what parties compute.
    Mistake(
        "class numbers are reversed",
        f"{_R}.roles.decide_labels",
        lambda right: after(right, lambda found: 2 - found),
        RING,
        quick=True,
    ),
    Mistake(
        "ties go to the last class",
        f"{_R}.roles.decide_labels",
        lambda right: lambda votes: votes.shape[1] - 1 - votes[:, ::-1].argmax(axis=1),
        RING,
    ),
    Mistake(
        "votes count for the next class",
        f"{_R}.roles.local_votes",
        lambda right: after(right, _wrong_column),
        RING,
    ),
    Mistake(
        "decoded sums are off by one", f"{_R}.algorithm.sums.FixedPoint.decode", _off_by_one, RING
    ),
    Mistake(
        "a step of PP-TopK returns the old vector",
        f"{_R}.roles.topk_step",
        lambda right: lambda G, V, inserted, *rest: (G, inserted),
        RING,
    ),
    Mistake("the last party's votes count twice", f"{_R}.roles.sum_words", _doubled_sum, RING),
    Mistake(
        "both parties of a pair add the mask",
        "veilring.protocols.masks.PairwiseKeys.mask",
        lambda right: lambda keys, arrays, digest: _unsigned(right, keys, arrays, digest),
        SEARCH,
    ),
    Mistake(
        "masks are not bound to the sum",
        "veilring.protocols.masks.PairwiseKeys.mask",
        lambda right: lambda keys, arrays, digest: right(keys, arrays, keys._me.encode()),
        SEARCH,
    ),
    Mistake(
        "labels of the nearest rows are reversed",
        f"{_S}.roles.nearest_rows",
        lambda right: after(right, lambda near: type(near)(near.distances, 2 - near.labels)),
        SEARCH,
    ),
    Mistake("counts are off by one", f"{_S}.algorithm.search.clipped_counts", _off_by_one, SEARCH),
    Mistake(
        "counts belong to another threshold",
        f"{_S}.roles.clipped_counts",
        lambda right: after(right, lambda counts: np.roll(counts, 1)),
        SEARCH,
    ),
    Mistake(
        "shares are interpolated at the wrong points",
        f"{_S}.algorithm.shares.lagrange_weights",
        lambda right: lambda points, p: right([point + 1 for point in points], p),
        SHARED,
    ),
    Mistake(
        "products are opened without a sharing of zero",
        f"{_S}.algorithm.shares.Dealer.zeros",
        lambda right: lambda dealer, count: dealer.random(count),
        SHARED,
    ),
    Mistake(
        "messages go round the ring backwards",
        "veilring.nodes.ring.Ring.successor",
        lambda right: lambda ring, party: ring.predecessor(party),
        RING,
    ),
    Mistake(
        "counts are not clipped",
        f"{_S}.roles.nearest_rows",
        lambda right: lambda queries, rows, k: right(queries, rows, len(rows)),
        SEARCH,
    ),
    Mistake("a round of PP-TopK is omitted", f"{_R}.roles.pp_topk", _without_a_round, forecast()),
    Mistake(
        "sums begin one round late",
        f"{_R}.roles._first_sum_round",
        _off_by_one,
        forecast(),
        quick=True,
    ),
    Mistake(
        "one party reverses the total",
        "veilring.protocols.release.roles._add",
        _read_backwards,
        RELEASE,
    ),
    # Protocols: what faults bring to light.
    Mistake(
        "a sum omits late parties",
        f"{_R}.roles._sum_by_shares",
        lambda right: add_without_the_lost,
        RING,
    ),
    Mistake(
        "shares that are sent again count twice",
        f"{_R}.roles._sum_by_shares",
        lambda right: add_what_is_sent_again,
        RING,
    ),
    # Protocols: what parties draw.
    Mistake(
        "noise is omitted",
        "veilring.protocols.noisyvotes.roles.noisy_counts",
        lambda right: lambda counts, *_given: counts,
        noise_is_planned,
    ),
    Mistake(
        "noise is added twice",
        "veilring.protocols.noisyvotes.roles.noisy_counts",
        lambda right: lambda counts, *given: right(right(counts, *given), *given),
        noise_is_planned,
    ),
    Mistake(
        "one party halves its share of the noise",
        "veilring.protocols.release.algorithm.noise.SumNoise.share",
        lambda right: _every_third(right, lambda share: share // 2),
        audited(Release, check_answers),
    ),
    Mistake(
        "one party adds no noise",
        "veilring.protocols.release.algorithm.noise.SumNoise.share",
        lambda right: _every_third(right, np.zeros_like),
        audited(Release, check_answers),
    ),
    Mistake(
        "the noise of a second sum repeats that of the first",
        "veilring.protocols.release.algorithm.noise.SumNoise.share",
        _repeated,
        audited(partial(Release, rows=3000, statistic="means"), check_comparison, number=0),
    ),
    Mistake(
        "words of tied queries are not masked",
        "veilring.protocols.masks.put_mask",
        _tied_words_unmasked,
        audited(partial(RankSearch, k=2), check_comparison, number=1),
    ),
    Mistake(
        "a party with rows near a query answers a millisecond later",
        "veilring.protocols.masks.masked_sums",
        _later_if_near,
        audited(partial(RankSearch, k=2), check_comparison, number=0),
    ),
    Mistake(
        "two parties share a seed",
        "veilring.randomness.Streams.generator",
        lambda right: (
            lambda streams, *path: right(
                streams, *("ben" if part == "cy" else part for part in path)
            )
        ),
        hidden(SUBJECTS["shares to all"]),
    ),
    Mistake(
        "all sums of a session share a mask",
        "veilring.protocols.masks.PairwiseKeys.mask",
        lambda right: lambda keys, arrays, _digest: _one_mask(right, keys, arrays),
        hidden(TWO_SUMS),
    ),
    Mistake(
        "all sessions share a mask",
        "veilring.protocols.masks.derive_secret",
        lambda right: _key_of_names,
        hidden(SUBJECTS["masked sums"]),
    ),
    # Protocols: what parties check.
    Mistake(
        "senders are not checked",
        "veilring.nodes.session.Session._inbox",
        lambda right: lambda session, sender: session._inboxes.setdefault("", _Inbox(sender)),
        lied(ring_lies),
    ),
    Mistake(
        "revealed nonces are not checked",
        "veilring.nodes.ring._check_reveal",
        nothing,
        lied(ring_lies),
        quick=True,
    ),
    Mistake(
        "contradictory commitments are blamed on one party",
        "veilring.nodes.ring._inconsistent_reports",
        lambda right: lambda _party, member, _told_by: _accused(member),
        lied(ring_lies),
        quick=True,
    ),
    Mistake(
        "digests of sums are not compared",
        "veilring.protocols.masks.receive_bound",
        lambda right: _unbound,
        digests_are_compared,
        quick=True,
    ),
    # Stores.
    Mistake(
        "charges are not written", f"{_L}._write_analysts", nothing, stored("ledger"), quick=True
    ),
    Mistake("stored answers are not found", f"{_L}._find", nothing, stored("ledger"), quick=True),
    Mistake(
        "each charge overwrites the last one",
        f"{_L}._write_analysts",
        lambda right: _overwriting,
        stored("ledger"),
    ),
    Mistake("the witness is not written", f"{_F}.Witness.write", nothing, stored("ledger")),
    Mistake(
        "all rows have the same hash",
        f"{_F}.hash_row",
        lambda right: lambda _values: 0,
        stored("ledger"),
    ),
    Mistake("the seal is not compared", f"{_F}._require_sealed", nothing, stored("ledger")),
    Mistake(
        "transactions do not record their state",
        f"{_F}.StateFile._keep_state",
        nothing,
        stored("ledger"),
    ),
    Mistake(
        "running sums are not written", f"{_LDP}._write", nothing, stored("collector"), quick=True
    ),
    Mistake(
        "stored reports are not checked",
        f"{_LDP}._require_whole",
        nothing,
        stored("collector", ("bit flip",)),
    ),
    Mistake(
        "the last report of a group is dropped",
        f"{_LDP}._insert",
        lambda right: lambda store, question, some: right(store, question, some.at(slice(4))),
        stored("collector"),
        quick=True,
    ),
    Mistake("rows are written nowhere", f"{_PLACES}.put", nothing, stored("state"), quick=True),
    Mistake("forgotten rows are not erased", f"{_PLACES}.erase", nothing, stored("state")),
    # Accounting.
    Mistake(
        "budgets are unlimited",
        "veilring.privacy.ledger.units_left",
        lambda right: lambda _limit, _spent: 10**18,
        accounted,
        quick=True,
    ),
    Mistake("a repeated request is charged twice", f"{_L}._find", nothing, accounted, quick=True),
    Mistake(
        "records pay nothing",
        "veilring.privacy.budgets.Records.pay",
        lambda right: lambda _records, _charge: True,
        accounted,
        quick=True,
    ),
    Mistake(
        "amounts are rounded down",
        "veilring.privacy.ledger.to_units",
        lambda right: lambda amounts, **_named: np.int64(np.floor(np.asarray(amounts) * 10**12)),
        accounted,
        quick=True,
    ),
    Mistake(
        "analysts share one budget",
        f"{_L}._left",
        lambda right: lambda ledger, analyst: right(ledger, "a"),
        accounted,
        quick=True,
    ),
    # Roles of others.
    *(Mistake(name, *planted) for name, planted in PLANTED.items()),
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
