"""Systems and roles with one planted mistake each, and the same without it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

import veilring as vr
from veilring.arrays import Floats, Ints
from veilring.nodes.party import broadcast
from veilring.protocols.masks import keys_cost, masked_cost, masked_sum
from veilring.protocols.system import PARTIES
from veilring.testing.auditing import Audit, Claim, RoleClaims, Verdict
from veilring.testing.auditing.findings import QUICK, Effort
from veilring.transport import Message
from veilring.transport.messages import Array

Words = NDArray[np.uint64]
Mistake = Literal["", "forecast", "leak", "leak to the second", "charge", "label", "late"]

# The runs that show a planted mistake: those of an audit would show it all the more.
FEW: Final = replace(QUICK, runs=200)
LATE_SECONDS: Final = 3.0  # simulated: only a fault makes a sum take this long


class Counts(Message, kind="planted.counts"):
    """The public number of a party's rows of each class."""

    words: Annotated[Words, Array("<u8", 1)]


class Majority(vr.System):
    """A system that labels every query with the majority class.

    Attributes:
        name: `majority`.
        mistake: The mistake that is planted.
    """

    title: ClassVar[str] = "Majority"
    summary: ClassVar[str] = "Peers count their rows of each class under masks."

    name: Literal["majority"] = Field("majority", description="majority")
    mistake: Mistake = Field("", description="a mistake")

    @override
    def promise(self, *, parties: int = PARTIES) -> vr.Promise:
        return vr.Promise(
            protects="each party's rows",
            against="any other party",
            threat_model="semi-honest parties",
            adjacency="",
            epsilon=None,
            delta=0.0,
            unit="batch",
            measure="totals only, no ε",
            learned="all parties: the number of rows of each class",
        )

    @override
    def forecast_for(self, facts: vr.Facts, queries: int) -> vr.Forecast:
        words = np.zeros(facts.classes + (self.mistake == "forecast"), np.uint64)
        cost = masked_cost(facts.parties, [words], star=False)
        return replace(cost, setup=keys_cost(facts.parties))

    @override
    def membership(self, facts: vr.Facts) -> vr.Membership:
        public = {"classes": facts.classes, "mistake": self.mistake}
        return vr.Membership(majority, batch_max=100, labels=np.asarray, public=public)

    @override
    def setup(self, parts: Mapping[str, vr.Rows], facts: vr.Facts) -> "MajoritySetup":
        return MajoritySetup(self, parts, facts)


class MajoritySetup(vr.PeerSetup):
    """Parties that are ready to count."""

    @override
    def label(self, queries: Floats, rng: Generator) -> Ints:
        total = sum(count(rows, self.facts.classes) for rows in self.parts.values())
        return np.full(len(queries), np.argmax(total))

    @override
    def spent(self, batches: int) -> vr.Spent:
        return vr.Spent(None, 0.0, batches, "batch")


async def majority(
    party: vr.Party,
    rows: vr.Rows,
    *,
    client: str,
    classes: int,
    mistake: Mistake,
    queries: Floats | None = None,
) -> Ints:
    """Label queries by the majority class; the leaks and the wrong label are made here."""
    own, clock = count(rows, classes), asyncio.get_running_loop().time
    began = clock()
    total = await masked_sum(party, own)
    is_late = clock() - began > LATE_SECONDS
    receiver = {"leak": client, "leak to the second": party.parties[1]}.get(mistake, "")
    if receiver == party.me:
        for peer in party.peers:
            await party.receive(Counts, sender=peer)
    elif receiver:
        party.round(2)
        await party.send(receiver, Counts(words=own))
    label = int(np.argmax(total))
    is_wrong = mistake == "label" or (mistake == "late" and is_late)
    found = (label + 1) % classes if is_wrong else label
    return np.full(0 if queries is None else len(queries), found, np.int64)


def count(rows: vr.Rows, classes: int) -> Words:
    """Return the number of rows of each class."""
    return np.bincount(rows.labels, minlength=classes).astype(np.uint64)


def with_less_noise(kind: type[vr.System], times: float = 4.0) -> type[vr.System]:
    """Return a system with the noise of a multiple of the ε that it promises and accounts for."""

    def setup(system: Any, parts: Mapping[str, vr.Rows], facts: vr.Facts) -> vr.Setup:
        loud: Any = kind(**{**system.model_dump(), "epsilon": times * system.epsilon})
        quiet: vr.Setup = loud.setup(parts, facts)
        quiet.spent = kind.setup(system, parts, facts).spent  # type: ignore[method-assign]  # planted
        return quiet

    return type(f"Quiet{kind.__name__}", (kind,), {"setup": setup})


async def total(party: vr.Party, own: int, *, masked: bool) -> int:
    """Add up the numbers of all parties, with or without masks."""
    words = np.array([own], np.uint64)
    if masked:
        return int((await masked_sum(party, words))[0])
    party.round(1)
    await broadcast(party, Counts(words=words))
    others = [(await party.receive(Counts, sender=peer)).words for peer in party.peers]
    return int(np.add.reduce([words, *others])[0])


def is_total(inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Require the sum of all inputs."""
    assert all(found == sum(inputs.values()) for found in results.values())


def sum_of_inputs(inputs: Mapping[str, Any]) -> object:
    """Return everything that a sum may reveal."""
    return sum(inputs.values())


MASKED = RoleClaims(
    total,
    {"ada": 1, "ben": 2, "cy": 3},
    is_total,
    other_inputs={"ada": 1, "ben": 3, "cy": 2},
    coalition=("ada",),
    permitted=sum_of_inputs,
    least=2,
    masked=True,
)
OPEN = MASKED.replaced(masked=False)

LONG = "a finding about message 3 from party-1 to party-0 (planted.counts), words: entry 0 " * 4

CLAIMS = tuple(
    Claim(verdict.name, f"Promise <{verdict}>.", verdict, LONG, "A single byte.", (LONG, "0"))
    for verdict in Verdict
)
AUDIT = Audit("majority", "Majority", {"mistake": "leak"}, 7, True, 1e-6, CLAIMS, 12.0)


def let_audits_be_short(monkeypatch: pytest.MonkeyPatch, effort: Effort = FEW) -> None:
    """Let quick audits of this process compare as many runs as an effort says."""
    monkeypatch.setattr("veilring.testing.hiding.RUNS_MIN", effort.runs)
    monkeypatch.setattr("veilring.testing.auditing.QUICK", effort)
