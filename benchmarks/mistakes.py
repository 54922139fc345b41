"""Planted mistakes: is each found, by which audit, after how many worlds and how many seconds?

Each is a change of one function. An audit that passes them by is no audit, so this is how the
audits themselves are tested: `python -m benchmarks --only mistakes`. Some are in the test suite.
"""

import pkgutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.measurement import Bound, Measurement
from veilring.errors import BudgetExhausted, ProtocolViolation, VeilringError
from veilring.nodes.party import Party
from veilring.nodes.ring import draw_ring
from veilring.privacy.budgets import Budgets, Charge, RecordCharge
from veilring.privacy.ledger import open_ledger
from veilring.protocols.masks import masked_sum
from veilring.scenarios import load_scenario
from veilring.testing.exploring import STORAGE_FAULTS, SystemSubject, explore_store
from veilring.testing.exploring.campaign import Campaign, explore_seed
from veilring.testing.exploring.kept import STORES
from veilring.testing.exploring.stores import StorageFault
from veilring.testing.lies import Lies, Verdict, audit_lies

SEEDS: Final = 100
"""Worlds after which a mistake counts as not found."""
_BARREN: Final = 3
"""In so many worlds some run of a right protocol has a result."""


class Found(NamedTuple):
    """How a mistake was found."""

    worlds: int
    """How many worlds, lies or checks it took."""
    sentence: str
    seconds: float


Audit = Callable[[], tuple[int, str] | None]
"""Returns how many worlds it took and what was wrong, or nothing."""


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


def explored(*settings: str) -> Audit:
    """Return the audit that explores the worlds of a system."""

    def audit() -> tuple[int, str] | None:
        subject, campaign = _subject(settings), Campaign()
        for seed in range(SEEDS):
            campaign.add(explore_seed(subject, seed))
            if campaign.failures:
                return seed + 1, campaign.failures[seed][0]
            if not campaign.succeeded and seed >= _BARREN:
                return seed + 1, "no run has a result"
        return None

    return audit


@cache
def _subject(settings: tuple[str, ...]) -> SystemSubject:
    return SystemSubject(load_scenario("faults", settings))


def stored(name: str, kinds: tuple[StorageFault, ...] = STORAGE_FAULTS) -> Audit:
    """Return the audit that explores a store, one class of fault after the other."""

    def audit() -> tuple[int, str] | None:
        (subject,) = (each for each in STORES if each.name == name)
        for seed in range(SEEDS):
            kind = kinds[seed % len(kinds)]
            try:
                wrong = explore_store(subject, seed, kind=kind).wrong
            except VeilringError as error:
                wrong = [f"{kind}: {error}"]
            if wrong:
                return seed + 1, wrong[0]
        return None

    return audit


def lied(make: Callable[[], Lies]) -> Audit:
    """Return the audit of lies: none may pass unnoticed, or fall upon somebody honest."""

    def audit() -> tuple[int, str] | None:
        try:
            lies = make()
        except VeilringError as error:
            return 1, str(error)
        found = lies.of(Verdict.UNNOTICED, Verdict.MISNAMED, Verdict.UNNAMED).rows
        return (lies.rows.index(found[0]) + 1, str(found[0])) if found else None

    return audit


def _ring_lies() -> Lies:
    return audit_lies(_ring, [None] * 3)


async def _ring(party: Party, _own: None) -> tuple[str, ...]:
    return tuple((await draw_ring(party)).order)


def digests_are_compared() -> tuple[int, str] | None:
    """Audit a masked sum: a party that was told other public values is named, or suspected."""
    lies = audit_lies(_sum, [np.array([own], np.uint32) for own in (3, 1, 4)])
    named = {Verdict.CULPRIT, Verdict.SUSPECTS}
    for place, lie in enumerate(lies.rows, start=1):
        if lie.adversary == "alter digest" and lie.verdict not in named:
            return place, str(lie)
    return None


async def _sum(party: Party, own: Any) -> list[int]:
    total: list[int] = (await masked_sum(party, own)).tolist()
    return total


def accounted() -> tuple[int, str] | None:
    """Audit what a ledger in memory charges and refuses."""
    ledger = open_ledger(None, Budgets(total=1.0, analyst=0.75, record=1.0))
    slots = ledger.records.add(["one", "two"])
    paid = RecordCharge.of(slots[:1], np.array([0.4]))
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("an answer is given", lambda: ledger.charge(_charge("a", 1, paid)) == b"1"),
        ("its price is spent", lambda: ledger.totals().spent == 0.25),
        ("its record pays", lambda: ledger.records.remaining().tolist() == [6 * 10**11, 10**12]),
        ("given again for nothing", lambda: ledger.charge(_charge("a", 1, paid)) == b"1"),
        ("and charged once", lambda: ledger.totals().answers == 1),
        ("a second record payment", lambda: ledger.charge(_charge("a", 2, paid)) == b"2"),
        ("a record that is spent refuses", lambda: _refused(ledger, _charge("a", 3, paid))),
        ("a third answer", lambda: ledger.charge(_charge("a", 4)) == b"4"),
        ("an analyst that is spent is refused", lambda: _refused(ledger, _charge("a", 5))),
        ("another analyst is not", lambda: ledger.charge(_charge("b", 6)) == b"6"),
        ("a total that is spent refuses all", lambda: _refused(ledger, _charge("c", 7))),
        ("all is counted", lambda: ledger.totals().spent == 1.0),
        ("amounts are rounded up", lambda: _refused(ledger, _charge("c", 8, amount=1e-13))),
    ]
    for place, (name, holds) in enumerate(checks, start=1):
        try:
            held = holds()
        except (VeilringError, sqlite3.Error) as error:
            return place, f"{name}: {error}"
        if not held:
            return place, f"it does not hold that {name}"
    return None


def _charge(
    who: str, number: int, records: RecordCharge | None = None, *, amount: float = 0.25
) -> Charge:
    answer = str(number).encode()
    return Charge(who, str(number), b"request " + answer, answer, amount, records)


def _refused(ledger: Any, charge: Charge) -> bool:
    try:
        ledger.charge(charge)
    except BudgetExhausted:
        return True
    return False


def after(right: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function whose result is changed."""
    return lambda *given, **named: change(right(*given, **named))


def nothing(_right: object) -> Callable[..., None]:
    """Return a function that does nothing."""
    return lambda *_given, **_named: None


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


def _accused(member: str) -> VeilringError:
    return ProtocolViolation(member, "heard other commitments than we did")


async def _unbound(party: Party, message_type: Any, *, sender: str, public: Any, due: int) -> Any:
    return await party.receive(message_type, sender=sender, due=due)


def _overwriting(ledger: Any, charged: Any) -> None:
    ledger._store.connection.executemany(
        "INSERT INTO analysts VALUES (?, 250000000000, ?) ON CONFLICT (name)"
        " DO UPDATE SET spent = excluded.spent, answers = answers + excluded.answers",
        list(charged.items()),
    )


RING, SEARCH = explored(), explored("protocol.name=rank-search", "protocol.k=5")
SHARED = explored("protocol.name=rank-search", "protocol.k=5", "protocol.reveal=votes")
LABEL = explored("protocol.name=rank-search", "protocol.k=5", "protocol.reveal=label")
_R: Final = "veilring.protocols.ring"
_S: Final = "veilring.protocols.ranksearch"
_L: Final = "veilring.privacy.ledger.Ledger"
_F: Final = "veilring.privacy.statefile"
_ROWS: Final = "veilring.protocols.prediction.rowfile"
_LDP: Final = "veilring.protocols.ldp.store.sqlite.SqliteStore"

MISTAKES: Final = (
    # Protocols: what parties compute.
    Mistake(
        "classes in the wrong order",
        f"{_R}.roles.decide_labels",
        lambda right: after(right, lambda found: 2 - found),
        RING,
        quick=True,
    ),
    Mistake(
        "votes for the next class",
        f"{_R}.roles.local_votes",
        lambda right: after(right, _wrong_column),
        RING,
    ),
    Mistake(
        "a sum's words decoded without a sign",
        f"{_R}.algorithm.sums.FixedPoint.decode",
        _off_by_one,
        RING,
    ),
    Mistake(
        "a step of the vector forgotten",
        f"{_R}.roles.topk_step",
        lambda right: lambda G, V, inserted, *rest: (G, inserted),
        RING,
    ),
    Mistake(
        "the last party's votes counted twice",
        f"{_R}.roles.secure_sum",
        _doubled_sum,
        RING,
    ),
    Mistake(
        "both ends add the mask",
        "veilring.protocols.masks.PairwiseKeys.mask",
        lambda right: lambda keys, arrays, digest: _unsigned(right, keys, arrays, digest),
        SEARCH,
    ),
    Mistake(
        "masks not bound to the sum's number",
        "veilring.protocols.masks.PairwiseKeys.mask",
        lambda right: lambda keys, arrays, digest: right(keys, arrays, keys._me.encode()),
        SEARCH,
    ),
    Mistake(
        "labels of the nearest rows mistaken",
        f"{_S}.roles.nearest_rows",
        lambda right: after(right, lambda near: type(near)(near.distances, 2 - near.labels)),
        SEARCH,
    ),
    Mistake(
        "an unclipped, shifted count", f"{_S}.algorithm.search.clipped_counts", _off_by_one, SEARCH
    ),
    Mistake(
        "counts of another threshold",
        f"{_S}.roles.clipped_counts",
        lambda right: after(right, lambda counts: np.roll(counts, 1)),
        SEARCH,
    ),
    Mistake(
        "interpolation at the wrong points",
        f"{_S}.algorithm.shares.lagrange_weights",
        lambda right: lambda points, p: right([point + 1 for point in points], p),
        SHARED,
    ),
    Mistake(
        "products that are not reshared",
        f"{_S}.algorithm.shares.Dealer.zeros",
        lambda right: lambda dealer, count: dealer.random(count),
        SHARED,
    ),
    # Protocols: what parties check.
    Mistake(
        "a reveal that is not checked",
        "veilring.nodes.ring._check_reveal",
        nothing,
        lied(_ring_lies),
        quick=True,
    ),
    Mistake(
        "the teller of two tongues named",
        "veilring.nodes.ring._two_tongues",
        lambda right: lambda party, member: _accused(member),
        lied(_ring_lies),
        quick=True,
    ),
    Mistake(
        "bound sums that are not compared",
        "veilring.protocols.masks.receive_bound",
        lambda right: _unbound,
        digests_are_compared,
        quick=True,
    ),
    # Stores.
    Mistake(
        "charged after the answer", f"{_L}._write_analysts", nothing, stored("ledger"), quick=True
    ),
    Mistake("an answer that is not kept", f"{_L}._find", nothing, stored("ledger"), quick=True),
    Mistake(
        "spending overwritten by the last",
        f"{_L}._write_analysts",
        lambda right: _overwriting,
        stored("ledger"),
    ),
    Mistake("the witness is not written", f"{_F}.Witness.write", nothing, stored("ledger")),
    Mistake(
        "rows hash to nothing", f"{_F}.hash_row", lambda right: lambda _values: 0, stored("ledger")
    ),
    Mistake("the seal is not compared", f"{_F}._require_sealed", nothing, stored("ledger")),
    Mistake(
        "a transaction that is not ended", f"{_F}.StateFile._keep_state", nothing, stored("ledger")
    ),
    Mistake(
        "running sums are not written", f"{_LDP}._write", nothing, stored("collector"), quick=True
    ),
    Mistake(
        "a store's reports are not checked",
        f"{_LDP}._require_whole",
        nothing,
        stored("collector", ("bit flip",)),
    ),
    Mistake(
        "no mark before places change",
        f"{_ROWS}.RowFile._begin_step",
        nothing,
        stored("state"),
    ),
    Mistake(
        "places without a checksum",
        f"{_ROWS}._checksum",
        lambda right: lambda _place: 7,
        stored("state", ("bit flip",)),
    ),
    Mistake("forgotten rows are not zeroed", f"{_ROWS}.RowFile._zero", nothing, stored("state")),
    Mistake(
        "an older copy of rows is taken",
        "veilring.protocols.prediction.state.ServerState._require_same_age",
        nothing,
        stored("state"),
    ),
    # Accounting.
    Mistake(
        "a budget without an end",
        "veilring.privacy.ledger.units_left",
        lambda right: lambda _limit, _spent: 10**18,
        accounted,
        quick=True,
    ),
    Mistake("a repeated request charged twice", f"{_L}._find", nothing, accounted, quick=True),
    Mistake(
        "records that pay nothing",
        "veilring.privacy.records.Records.pay",
        lambda right: lambda _records, _charge: True,
        accounted,
        quick=True,
    ),
    Mistake(
        "amounts rounded down",
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
)


def measure(*, quick: bool) -> list[Measurement]:
    """Plant each mistake, and measure how long it takes to find."""
    found = {each: find(each) for each in MISTAKES if each.quick or not quick}
    for each, how in found.items():
        said = (
            "NOT FOUND"
            if how is None
            else f"{how.worlds:4} worlds {how.seconds:6.2f} s  {how.sentence[:90]}"
        )
        print(f"{each.name:42} {said}")
    share = sum(how is not None for how in found.values()) / len(found)
    return [Measurement("mistakes found", "share", (share,), Bound("at least", 1.0))]
