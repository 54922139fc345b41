"""What is said of a coalition, of faults and of retries: counts and names, never anybody's rows."""

from dataclasses import dataclass

from veilring.protocols.system import Estimate
from veilring.simulation.faults import FaultClass


@dataclass(frozen=True, slots=True)
class Attack:
    """How good claims are that an entry of PP-TopK's vector is the victim's own.

    Attributes:
        claims: How many were made.
        right: How many of them are right.
        located: How many of the victim's distances were claimed rightly, each counted once.
    """

    claims: int = 0
    right: int = 0
    located: int = 0

    def plus(self, other: "Attack") -> "Attack":
        """Return both together."""
        return Attack(
            self.claims + other.claims, self.right + other.right, self.located + other.located
        )


@dataclass(frozen=True, slots=True)
class Victim:
    """What a coalition found of a party beside one of its members, over all batches.

    Attributes:
        party: Whose secrets they are.
        queries: How many queries were asked while it sat beside a member.
        between: For how many of them it sat between two.
        votes: For how many of them its votes were recovered exactly.
        distances: How many distances it brought to PP-TopK for those queries: at most k for each.
        simple: The attack that claims whatever is new in what the victim passed on.
        optimal: The attack that claims what is more likely the victim's own than not; `None` where
            it was not tried.
        pinned: For how many of those queries a distance was seen to come from it and nobody else.
        pinned_expected: The same, as simulated runs on the same distances have it.
    """

    party: str
    queries: int
    between: int
    votes: int
    distances: int
    simple: Attack
    optimal: Attack | None
    pinned: int
    pinned_expected: Estimate


@dataclass(frozen=True, slots=True)
class Named:
    """How many of the nearest distances, which are public, were traced to their owners.

    Attributes:
        values: How many distances of parties outside the coalition are in the results.
        guessed: How many owners a guess names right, on average.
        named: How many the coalition names right from the attempts that succeeded.
        with_retries: The same, with what it saw of the attempts that failed.
        recurred: How many distances it saw in a failed attempt and again, and so knows to be real.
        recurred_hidden: How many of those are in no result.
    """

    values: int
    guessed: float
    named: float
    with_retries: float
    recurred: int
    recurred_hidden: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a semi-honest coalition found, held against the truth.

    Attributes:
        members: Who pooled their views.
        victims: Whom they sat beside; in the order of the parties.
        exposure: The probability that all neighbours of an honest party are members, in closed
            form, for the ring of the first batch.
        honest: How many honest parties there were, added up over batches.
        exposed: For how many of them the votes were recovered, exactly.
        exposed_expected: The same, as the closed form has it.
        groups: How many groups of honest parties the coalition could tell apart in the votes,
            added up over batches.
        groups_recovered: For how many of them it found the sum of the votes, exactly.
        named: Whose the nearest distances are.
    """

    members: tuple[str, ...]
    victims: tuple[Victim, ...]
    exposure: float
    honest: int
    exposed: int
    exposed_expected: float
    groups: int
    groups_recovered: int
    named: Named


@dataclass(frozen=True, slots=True)
class StruckFault:
    """A fault of the schedule, and whether a message or a party met it.

    Attributes:
        kind: What.
        parties: Whom it strikes.
        start_seconds: When, in simulated seconds from the start of the parties.
        end_seconds: When it was over; `None` for never.
        strength: Extra seconds, or how many times slower; 0 where there is no such thing.
        struck: Whether it had an effect.
    """

    kind: FaultClass
    parties: tuple[str, ...]
    start_seconds: float
    end_seconds: float | None
    strength: float
    struck: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """What it took to get a result without the parties that were lost.

    Attributes:
        without: The parties that were left out, in the order of the parties.
        attempts: How many attempts failed.
        rows_lost: How many rows those parties held.
        messages: What the failed attempts sent in all, set-up included.
        bytes: Of those.
    """

    without: tuple[str, ...]
    attempts: int
    rows_lost: int
    messages: int
    bytes: int
