"""Roles that no package contains, as a newcomer writes them, and the mistakes planted in them.

The roles call helpers of this module, which the mistakes replace. Audits know neither: they get the
claims of a role, as `veilring audit` and `veilring explore` do.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.auditing import Audit, explored_subject
from veilring.errors import PeerLost, SessionAborted
from veilring.nodes.party import Party, broadcast
from veilring.testing.auditing import RoleClaims, Verdict
from veilring.testing.auditing.findings import QUICK
from veilring.testing.auditing.views import check_hidden
from veilring.transport.messages import Message

PRIME: Final = 2**31 - 1
_WORD: Final = 2**62
_HOLDERS: Final = 3
_PATIENCE: Final = 3.0  # seconds
_LOST: Final = (PeerLost, SessionAborted)


class Number(Message, kind="strangers.number"):
    """A share, a total or a masked number."""

    n: int


def holders(parties: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parties that hold shares, one more than may collude."""
    return parties[:_HOLDERS]


def split(party: Party, own: int, count: int, modulus: int) -> list[int]:
    """Split a number into additive shares."""
    shares = [int(party.rng.integers(0, modulus)) for _ in range(count - 1)]
    return [*shares, (own - sum(shares)) % modulus]


async def shared_sum(party: Party, own: int, *, modulus: int) -> int:
    """Add up the numbers of all parties by shares."""
    holding = holders(party.parties)
    party.round(1)
    shares = dict(zip(holding, split(party, own, len(holding), modulus), strict=True))
    for holder in holding:
        if holder != party.me:
            await party.send(holder, Number(n=shares[holder]))
    party.round(2)
    totals = {}
    if party.me in holding:
        others = [(await party.receive(Number, sender=peer)).n for peer in party.peers]
        totals[party.me] = (shares[party.me] + sum(others)) % modulus
        await broadcast(party, Number(n=totals[party.me]))
    for holder in holding:
        if holder != party.me:
            totals[holder] = (await party.receive(Number, sender=holder)).n
    return sum(totals.values()) % modulus


def pads(party: Party, modulus: int) -> list[int]:
    """Draw the pads of two numbers."""
    return [int(party.rng.integers(0, modulus)) for _ in range(2)]


async def before_sending(_own: tuple[int, int]) -> None:
    """Do nothing that takes time."""


async def hand_in(party: Party, own: tuple[int, int], *, modulus: int) -> None:
    """Send two padded numbers to the first party, which learns nothing from them."""
    party.round(1)
    first = party.parties[0]
    if party.me != first:
        await before_sending(own)
        for number, pad in zip(own, pads(party, modulus), strict=True):
            await party.send(first, Number(n=(number + pad) % modulus))
        return
    for peer in party.peers:
        for _ in own:
            await party.receive(Number, sender=peer)


async def hear(party: Party, peer: str) -> int:
    """Return the number of a peer."""
    return (await party.receive(Number, sender=peer)).n


async def hear_all(party: Party) -> dict[str, int]:
    """Return the number of each peer."""
    return {peer: await hear(party, peer) for peer in party.peers}


async def collect(party: Party, own: int) -> list[int]:
    """Tell all parties the numbers of all, in the order of the parties."""
    party.round(1)
    await broadcast(party, Number(n=own))
    numbers = {party.me: own, **await hear_all(party)}
    return [numbers[name] for name in party.parties]


def _shares_of_a_line(party: Party, own: int, count: int, modulus: int) -> list[int]:
    slope = int(party.rng.integers(0, modulus))
    return [(own + slope * place) % modulus for place in range(1, count + 1)]


def _shares_by_xor(party: Party, own: int, count: int, _modulus: int) -> list[int]:
    share = int(party.rng.integers(0, 256))
    return [share, share ^ own, *(0,) * (count - 2)]


async def _wait_by_value(own: tuple[int, int]) -> None:
    await asyncio.sleep(own[1] * 0.05)


async def _lost_counts_as_zero(party: Party, peer: str) -> int:
    party.tolerate_losses()
    try:
        return (await party.receive(Number, sender=peer)).n
    except _LOST:
        return 0


async def _late_counts_as_zero(party: Party, peer: str) -> int:
    try:
        async with asyncio.timeout(_PATIENCE):
            return (await party.receive(Number, sender=peer)).n
    except TimeoutError:
        return 0


def _retry(pause: float) -> Callable[..., Any]:
    async def hear_again(party: Party, peer: str) -> int:
        party.tolerate_losses()
        while True:
            try:
                return (await party.receive(Number, sender=peer)).n
            except _LOST:
                await asyncio.sleep(pause)

    return hear_again


async def _in_order_of_arrival(party: Party) -> dict[str, int]:
    async with asyncio.TaskGroup() as group:
        arrived = list[int]()
        for peer in party.peers:
            group.create_task(hear(party, peer)).add_done_callback(
                lambda task: (
                    None if task.cancelled() or task.exception() else arrived.append(task.result())
                )
            )
    return dict(zip(party.peers, arrived, strict=True))


async def _leave_out_the_lost(party: Party) -> dict[str, int]:
    party.tolerate_losses()
    numbers = {}
    for peer in party.peers:
        try:
            numbers[peer] = await hear(party, peer)
        except _LOST:
            continue
    return numbers


def _leaving_a_task(right: Callable[..., Any]) -> Callable[..., Any]:
    async def hear_and_sleep(party: Party) -> dict[str, int]:
        kept.append(asyncio.create_task(asyncio.sleep(1e6)))
        found: dict[str, int] = await right(party)
        return found

    kept = list[asyncio.Task[None]]()
    return hear_and_sleep


def _anything(_inputs: Mapping[str, Any], _results: Mapping[str, Any]) -> None:
    """Accept any result: only views are audited."""


def _are_all_numbers(inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    for name, found in results.items():
        if found != list(inputs.values()):
            raise AssertionError(f"{name} found {found}")


def _total(inputs: Mapping[str, Any]) -> object:
    return sum(inputs.values())


def _nothing(_inputs: Mapping[str, Any]) -> object:
    return None


def _hidden(claims: RoleClaims) -> Audit:
    def audit() -> tuple[int, str] | None:
        (found,) = check_hidden(claims, QUICK, 0)
        return (QUICK.runs, found.finding) if found.verdict is Verdict.CONTRADICTED else None

    return audit


def shared(modulus: int) -> Audit:
    """Return the audit of what two of three holders see."""
    numbers = {"ada": 0, "ben": 0, "cy": 3, "eve": 200}
    other = numbers | {"cy": 200, "eve": 3}
    return _hidden(
        RoleClaims(
            shared_sum,
            numbers,
            _anything,
            other_inputs=other,
            coalition=("ada", "ben"),
            permitted=_total,
            modulus=modulus,
        )
    )


def handed_in(modulus: int) -> Audit:
    """Return the audit of what the first party sees of padded numbers."""
    numbers = {"ada": (0, 0), "ben": (1, 5), "cy": (7, 7)}
    other = numbers | {"ben": (1, 200)}
    return _hidden(
        RoleClaims(
            hand_in,
            numbers,
            _anything,
            other_inputs=other,
            coalition=("ada",),
            permitted=_nothing,
            modulus=modulus,
        )
    )


def collected() -> Audit:
    """Return the audit that explores the exchange of numbers."""
    numbers = {"ada": 1, "ben": 2, "cy": 4, "eve": 8}
    return explored_subject(lambda: RoleClaims(collect, numbers, _are_all_numbers).explored)


def _byte_pads(party: Party, _modulus: int) -> list[int]:
    return list(map(int, party.rng.integers(0, 256, 2)))


def _one_pad(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: right(*given)[:1] * 2


def always(wrong: object) -> Callable[[Any], Any]:
    """Return what replaces a function by a wrong one."""
    return lambda _right: wrong


_HERE: Final = "benchmarks.strangers"
_TWO: Final = always(lambda parties: parties[:2])
PLANTED: Final[Mapping[Audit, Sequence[tuple[Any, ...]]]] = {
    shared(PRIME): (
        ("colluders hold all shares modulo a prime", f"{_HERE}.holders", _TWO),
        ("colluders hold two shares of a line", f"{_HERE}.split", always(_shares_of_a_line)),
        ("colluders hold both shares of an exclusive or", f"{_HERE}.split", always(_shares_by_xor)),
    ),
    shared(_WORD): (("colluders hold all shares modulo a power of two", f"{_HERE}.holders", _TWO),),
    handed_in(PRIME): (
        ("a pad is a single byte", f"{_HERE}.pads", always(_byte_pads)),
        ("two numbers share a pad modulo a prime", f"{_HERE}.pads", _one_pad),
        ("a larger number is sent later", f"{_HERE}.before_sending", always(_wait_by_value)),
    ),
    handed_in(_WORD): (
        ("two numbers share a pad modulo a power of two", f"{_HERE}.pads", _one_pad),
    ),
    collected(): (
        ("a lost party counts as zero", f"{_HERE}.hear", always(_lost_counts_as_zero), True),
        ("a late party counts as zero", f"{_HERE}.hear", always(_late_counts_as_zero), True),
        (
            "numbers are taken in the order of arrival",
            f"{_HERE}.hear_all",
            always(_in_order_of_arrival),
            True,
        ),
        ("a lost party is retried for ever", f"{_HERE}.hear", always(_retry(1.0)), True),
        ("a lost party is retried without a pause", f"{_HERE}.hear", always(_retry(0.0))),
        (
            "a lost party's number is looked up",
            f"{_HERE}.hear_all",
            always(_leave_out_the_lost),
            True,
        ),
        ("a task is left behind", f"{_HERE}.hear_all", _leaving_a_task, True),
    ),
}
"""The mistakes of each audit, as `benchmarks.mistakes` has them."""
