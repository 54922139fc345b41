"""Exploration of a custom role: correct roles pass, and mistakes of all kinds are found."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import pytest

from veilring.errors import InputError, PeerLost, SessionAborted
from veilring.nodes.party import Party, broadcast
from veilring.reached import count_marks, marks_in, sometimes
from veilring.testing.exploring import Campaign, Explored, explore
from veilring.transport import Message

INPUTS = [3, 1, 4, 1]


class Number(Message, kind="test.explored-number"):
    """A public number."""

    number: int


async def maximum(party: Party, own: int) -> int:
    """Send the party's number to all, and return the greatest."""
    party.round(1)
    await broadcast(party, Number(number=own))
    told = [(await party.receive(Number, sender=peer)).number for peer in party.peers]
    return max(own, *told)


async def hasty_maximum(party: Party, own: int) -> int:
    """Continue without parties that did not answer within a second."""
    party.round(1)
    await broadcast(party, Number(number=own))
    told = [own]
    for peer in party.peers:
        try:
            async with asyncio.timeout(1.0):
                told.append((await party.receive(Number, sender=peer)).number)
        except TimeoutError:
            continue
    return max(told)


async def failing_maximum(party: Party, own: int) -> int:
    """Fail with an error that is not a sentence."""
    found = await maximum(party, own)
    return found // (len(party.parties) - 3)


async def patient_maximum(party: Party, own: int, *, pause: float) -> int:
    """Ask a lost peer again without end."""
    party.tolerate_losses()
    party.round(1)
    told = [own]
    for peer in party.peers:
        with suppress(PeerLost, SessionAborted):
            await party.send(peer, Number(number=own))
    for peer in party.peers:
        while len(told) < party.peers.index(peer) + 2:
            try:
                told.append((await party.receive(Number, sender=peer)).number)
            except (PeerLost, SessionAborted):
                await asyncio.sleep(pause)
    return max(told)


_all_time = 0


async def remembering_maximum(party: Party, own: int) -> int:
    """Remember earlier values in the process, so that no seed is reproducible."""
    global _all_time  # noqa: PLW0603  (the mistake)
    _all_time += 1
    await asyncio.sleep(0.001 * _all_time)
    return await maximum(party, own)


async def racing_maximum(party: Party, own: int) -> int:
    """Rely on two tasks taking turns in their starting order."""
    await maximum(party, own)
    found: list[int] = []

    async def note(number: int) -> None:
        found.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in (own, max(INPUTS)):
            tasks.create_task(note(number))
    return found[-1]


async def marked_maximum(party: Party, own: int) -> int:
    """Mark one situation that is never reached, and one that always is."""
    sometimes("a number is negative", own < 0)
    sometimes("a number is positive", own > 0)
    return await maximum(party, own)


def is_greatest(inputs: Mapping[str, int], results: Mapping[str, int]) -> None:
    """Require the greatest number of the parties that took part."""
    for party, found in results.items():
        assert found == max(inputs.values()), f"{party} found {found}"


def said(campaign: Campaign) -> str:
    """Return all errors found."""
    return "\n".join(sentence for found in campaign.failures.values() for sentence in found)


def test_a_correct_role_survives_all_classes_of_fault() -> None:
    """The greatest number of the participants is found, or a named error."""
    campaign = explore(maximum, INPUTS, invariant=is_greatest, seeds=40)
    campaign.check()
    assert campaign.missing == ()
    assert min(campaign.succeeded, campaign.failed) > 40


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        (hasty_maximum, "found 1"),
        (failing_maximum, "ZeroDivisionError"),
        (remembering_maximum, "the same seed made another world"),
        (racing_maximum, "found 1"),
    ],
)
def test_a_mistake_is_found(role: object, sentence: str) -> None:
    """It finds ignored losses, unnamed errors, process memory and dependence on task order."""
    campaign = explore(role, [1, 1, 1, 4], invariant=is_greatest, seeds=20)  # type: ignore[arg-type]  # each case is a role
    assert sentence in said(campaign)
    with pytest.raises(AssertionError, match="seeds went wrong"):
        campaign.check()


@pytest.mark.parametrize(
    ("pause", "sentence"), [(1.0, "no fault struck in the last"), (0.0, "a loop that never waits")]
)
def test_a_role_that_retries_for_ever_is_found(pause: float, sentence: str) -> None:
    """A retry without end is a mistake, with a pause or without, though its run has a limit."""
    campaign = explore(patient_maximum, [3, 1], invariant=is_greatest, seeds=[1, 4], pause=pause)
    assert sentence in said(campaign)


def test_public_arguments_are_given_in_one_way() -> None:
    """Public arguments are keywords, or the argument `public`."""
    with pytest.raises(InputError, match="all as keywords: pause"):
        explore(patient_maximum, INPUTS, invariant=is_greatest, public={"n": 1}, pause=1)


def test_marks_that_no_world_reaches_are_named() -> None:
    """A campaign that never reached a situation does not count as a test of it."""
    campaign = explore(marked_maximum, INPUTS, invariant=is_greatest, seeds=5)
    assert "a number is negative" in campaign.unreached
    assert "a number is positive" not in campaign.unreached
    with pytest.raises(AssertionError, match=r"never occurred .*a number is negative"):
        campaign.check()


def test_marks_reached_by_worlds_must_hold_once() -> None:
    """A mark of another module counts as soon as a world has passed it."""
    campaign = Campaign()
    campaign.add(Explored(0, marks=Counter({"seen": 2, "passed": 0})))
    campaign.add(Explored(1, marks=Counter({"seen": 0})))
    assert campaign.reached["seen"] == 2
    assert campaign.unreached == ("passed",)


def test_marks_are_counted_only_in_a_campaign() -> None:
    """Outside a campaign a mark does nothing."""
    sometimes("nobody counts this")
    with count_marks() as counted:
        sometimes("somebody counts this")
        sometimes("this is not so", happens=False)
    assert dict(counted) == {"somebody counts this": 1, "this is not so": 0}
    assert marks_in([asyncio]) == frozenset()


@pytest.mark.slow
def test_the_fixture_reports_the_failure(explore: object) -> None:
    """It explores a role in one line, and reports the failing seed and its error."""
    assert explore(maximum, INPUTS, invariant=is_greatest, seeds=20).seeds == 20  # type: ignore[operator]  # the plugin's function
    with pytest.raises(AssertionError, match=r"in the world of seed \d+: party-\d found"):
        explore(hasty_maximum, [1, 1, 1, 4], invariant=is_greatest, seeds=20)  # type: ignore[operator]  # likewise


def test_too_few_parties_are_refused() -> None:
    """A role for three parties is not explored with two."""
    with pytest.raises(InputError, match="inputs"):
        explore(maximum, [1, 2], invariant=is_greatest, least=3)
