"""Deployed statistics: the terms are a plan, whose results the parties compute once, when asked.

All parties agree on the plan beforehand, so a request has no content: an exact plan cannot be
compared with another one that no party has approved. The members are those of one result, see
`veilring.protocols.once`. Each pays the plan's ε once, stores the published numbers, and sends the
same ones to each client from then on. Clients estimate the results from them.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from typing_extensions import override

from veilring.arrays import Ints
from veilring.config import as_scenario_errors
from veilring.deployment.asking import Client
from veilring.deployment.config import STATISTICS, Duty, QueryingConfig
from veilring.deployment.peers import (
    MemberConfig,
    MemberStart,
    MemberTerms,
    begin_member,
    fetch_result,
    serve_member,
)
from veilring.errors import InputError
from veilring.nodes.party import Party
from veilring.protocols.membership import Membership, Once
from veilring.protocols.promise import Facts, Promise
from veilring.protocols.release.algorithm.noise import Account
from veilring.protocols.statistics.algorithm.columns import Encoded
from veilring.protocols.statistics.algorithm.tallies import Totals
from veilring.protocols.statistics.plan import Plan
from veilring.protocols.statistics.roles import sum_totals
from veilring.protocols.statistics.terms import PlanTerms
from veilring.transport.handshake import FORMAT

MESSAGES_FORMAT: Final = 1
"""The version of the messages: see `System.messages_format`."""


class StatisticsTerms(MemberTerms, PlanTerms):
    """The terms of parties that compute statistics: a plan, the edition of rows, and a budget."""

    @property
    @override
    def keys(self) -> dict[str, str]:
        return super().keys | {f"{STATISTICS} {FORMAT}": str(MESSAGES_FORMAT)}

    @override
    def checked(self, parties: int | None = None) -> Self:
        PlanTerms.checked(self, parties)
        if parties is not None:
            self.check_budget("this plan", self.promise(parties))
        return self

    @override
    def membership(self, parties: int, *, count: str = "roster") -> Membership:
        with as_scenario_errors({"parties": count}, "plan"):
            plan = self.bind(parties)
        return Membership(take_part, 0, _refuse_queries, {"plan": plan}, once=_once(plan))

    @override
    def promise(self, parties: int) -> Promise:
        return self.bind(parties).promise

    @override
    def facts(self, parties: int) -> Facts:
        return Facts(parties, features=0, classes=0)

    @override
    def read_own(self, config: MemberConfig, parties: int) -> tuple[None, Encoded]:
        table = self.read(Path(config.rows), config.particulars)
        return None, self.bind(parties).encode(table)


async def take_part(
    party: Party,
    encoded: Encoded,
    *,
    client: str,
    plan: Plan,
    charge: Callable[[Account | None], object] | None = None,
) -> tuple[Totals, ...]:
    """Compute the published numbers of a plan together with all other members."""
    del client  # all parties learn the totals
    heard = await sum_totals(party, encoded, plan=plan, charge=charge)
    return await asyncio.to_thread(plan.publish, heard)  # hiding small counts may take a minute


def _once(plan: Plan) -> Once:
    """Return how to keep the published numbers of a plan."""
    liars = plan.parties - 2 if plan.epsilon is None else plan.trust.tolerated
    return Once(plan.size, plan.pack, plan.unpack, liars)


def _refuse_queries(*_: object) -> Ints:
    message = "these parties compute statistics, and label no queries; use `veilring stats`"
    raise InputError.because(message, field="queries")


class StatisticsClientConfig(QueryingConfig):
    """A client that asks for the results of a plan.

    Attributes:
        role: `client`.
    """

    role: Literal["client"]


class AskedStatistics(NamedTuple):
    """The results of running parties.

    Attributes:
        terms: The terms, which name the statistics.
        results: The result of each statistic.
        promise: The guarantee.
    """

    terms: StatisticsTerms
    results: tuple[Any, ...]
    promise: Promise


async def ask_statistics(config: StatisticsClientConfig) -> AskedStatistics:
    """Return the results of the plan of running parties, which compute them now if necessary.

    Raises:
        BudgetExhausted: If a member's budget is insufficient.
    """
    client = Client(config)
    parties = len(client.roster.parties)
    terms = StatisticsTerms.load(Path(config.terms), parties)
    plan = terms.bind(parties)
    shown = await fetch_result(client, terms, _once(plan))
    return AskedStatistics(terms, plan.estimate(shown), plan.promise)


DUTIES: Final[Mapping[str, Duty]] = {
    "member": Duty(
        MemberConfig,
        serve=partial(serve_member, kind=StatisticsTerms),
        start=partial(MemberStart, kind=StatisticsTerms),
        begin=partial(begin_member, kind=StatisticsTerms),
    ),
    "client": Duty(StatisticsClientConfig, statistics=ask_statistics),
}
"""The duties of parties that compute statistics, and of their clients."""
