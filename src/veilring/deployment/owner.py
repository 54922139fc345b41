"""The deployed data owner: its terms, its server, and the analyst that queries it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Literal, Self

from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats
from veilring.config import Section, as_scenario_errors, require_key
from veilring.data.table import Rows
from veilring.deployment.asking import Client
from veilring.deployment.config import (
    AskingConfig,
    BudgetAmount,
    Duty,
    FilePath,
    ReadingConfig,
    Schema,
    ServerConfig,
    StateConfig,
    name_of,
)
from veilring.deployment.policy import ANY_K, Request
from veilring.deployment.start import Start, Step
from veilring.errors import ScenarioError
from veilring.nodes.service import Threads, opening
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius.messages import LabelRequest, OwnerRules
from veilring.protocols.radius.neighbourhood import Radius
from veilring.protocols.radius.owner import LABEL_SERVICE, Owner, request_labels
from veilring.protocols.radius.system import DataOwner

_log = logging.getLogger("veilring.owner")
_analyst_log = logging.getLogger("veilring.analyst")
# Analysts whose batches are in progress at once, each with one turn at a time. Python runs a clique
# search in one thread at a time anyway, and others wait a second or two at most.
WORKERS_MAX: Final = 4
_DECIMALS: Final = 6  # of a radius in the unit cube


class OwnerTerms(Schema):
    """The terms of a data owner.

    Attributes:
        protocol: The labelling. `radius` and `k` are those of analysts who choose neither.
        rows: The number of rows, if it is public; otherwise counting them costs budget.
    """

    system: ClassVar[type[DataOwner]] = DataOwner
    protocol: DataOwner = DataOwner()
    rows: int | None = Field(None, ge=1)

    @override
    def facts(self, parties: int, rows: int | None = None) -> Facts:
        return super().facts(parties, self.rows if rows is None else rows)

    @cached_property
    def rules(self) -> OwnerRules:
        """The protocol's public rules."""
        return self.protocol.bind(self.facts(1))

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        known = self.rows is not None or not self.protocol.public_rows
        require_key(known, "rows", self.rows, "a number, since protocol.public_rows is true")
        with as_scenario_errors({}, "protocol"):
            _ = self.rules  # which checks its arguments
        return self


class BudgetsSection(Section):
    """The total budgets, for the lifetime of the ledger.

    Attributes:
        total: The budget of all analysts together.
        analyst: The budget of each analyst.
        analysts: The budgets of individual analysts, by name.
    """

    total: BudgetAmount
    analyst: BudgetAmount | None = None
    analysts: Mapping[str, BudgetAmount] = Field({}, description="a table of names and numbers")


class OwnerConfig(ServerConfig, StateConfig, ReadingConfig):
    """A data owner that labels analysts' queries.

    Attributes:
        role: `server`.
        rows: The CSV file with its own rows; the label is the last column.
        budgets: The privacy budgets. To change them, see `amend`.
        amend: Whether to accept changed budgets; charges are kept.
    """

    role: Literal["server"]
    rows: FilePath
    budgets: BudgetsSection
    amend: bool = False


class OwnerStart(Start[OwnerConfig]):
    """The checks at the start of a data owner."""

    @cached_property
    def terms(self) -> OwnerTerms:
        """The terms."""
        return OwnerTerms.load(Path(self.config.terms))

    @cached_property
    def rows(self) -> Rows:
        """The rows of its file."""
        own = self.config
        return self.terms.read_rows(Path(own.rows), own.outside_max, self.log, own.particulars)

    @property
    @override
    def request(self) -> Request:
        return owner_request(self.terms)

    @override
    def files(self) -> Iterator[Step]:
        yield "rows", lambda: self.rows

    @override
    def open_copy(self) -> bool:
        _open_ledger(self.config, copy=True).close()
        return True


async def serve_owner(
    config: OwnerConfig, *, on_ready: Callable[[Owner], None] | None = None
) -> None:
    """Label queries until cancelled.

    All files are read and checked first. When cancelled, the owner finishes its current work and
    shuts down in order; a client without an answer can repeat its request without paying twice.

    Args:
        on_ready: Called once the owner answers queries.
    """
    start = OwnerStart(config, _log)
    start.begin()
    terms = start.terms
    with _open_ledger(config) as ledger:
        admission = start.admission(ledger.file)
        async with Threads(WORKERS_MAX, "labels") as offload:
            owner = Owner(start.rows, terms.rules, ledger, offload, admission)
            offers = owner.offers(terms.digest)
            async with start.server.listen(offers, terms=terms.keys, totals=ledger.totals):
                if on_ready is not None:
                    on_ready(owner)
                await owner.failure()


def owner_request(terms: OwnerTerms) -> Request:
    """Return a request under the terms, for a policy; each chooses its ε, and k or a radius."""
    return Request("", name_of(DataOwner), k=ANY_K, rows=terms.rows, epsilon=0.0)


def begin_owner(config: OwnerConfig) -> bool:
    """Create the ledger of an owner: see `begin_state` of `veilring.deployment.duties`."""
    _open_ledger(config, new=True).close()
    return True


def _open_ledger(config: OwnerConfig, *, new: bool = False, copy: bool = False) -> Ledger:
    chosen = config.budgets
    with as_scenario_errors({}, "budgets"):
        budgets = Budgets("epsilon", chosen.total, chosen.analyst, chosen.analysts)
    return open_ledger(Path(config.state), budgets, amend=config.amend, new=new, copy=copy)


class AnalystConfig(AskingConfig):
    """An analyst that queries a data owner.

    Attributes:
        role: `client`.
        ask: The data owner.
        epsilon: The price of the file of queries, as one batch.
        radius: The radius around each query within which rows vote, in the unit cube. `auto`
            follows from the queries, ε and the number of rows, which must be public in the terms.
        k: The approximate number of neighbours that vote, instead of a radius. Without either, the
            radius or k of the terms.
        name: The name of the request; with a new name, the same queries are answered and charged
            again.
    """

    renamed = MappingProxyType({"r": "radius"})

    role: Literal["client"]
    epsilon: float = Field(gt=0)
    radius: Radius | None = None
    k: int | None = Field(None, ge=1, description="a whole number above 0, if radius is left out")
    name: str = Field("", description="a text, or nothing")


async def ask_owner(config: AnalystConfig, queries: Path) -> dict[str, list[object]]:
    """Get the rows of a CSV file labelled as one batch.

    The request's key follows from its content: repeating a failed command returns the same labels
    and is charged once.

    Returns:
        The kept columns, and the name of the class of each row, in order, as the column `label`;
        with k also the radius within which rows voted, as `radius`.

    Raises:
        BudgetExhausted: If a budget is insufficient.
    """
    client = Client(config)
    terms = OwnerTerms.load(Path(config.terms))
    rows, kept = terms.asked(queries, config, _analyst_log)
    request = make_request(config, terms, rows)
    terms.rules.check(request)
    # the ledger answers an equal request
    async with client.connect(terms.keys, repeat="free") as connection:
        role = opening(request_labels, LABEL_SERVICE, terms.digest)
        answer = await connection.run(role, request, rules=terms.rules)
    columns: dict[str, list[object]] = {name: [*cells] for name, cells in kept.items()}
    columns["label"] = [terms.classes[each] for each in answer.labels]
    if request.k:
        columns["radius"] = answer.radii.round(_DECIMALS).tolist()
    return columns


def make_request(config: AnalystConfig, terms: OwnerTerms, queries: Floats) -> LabelRequest:
    """Return an analyst's request for one batch.

    Args:
        queries: Shape (queries, features), in [0, 1].
    """
    system, facts = terms.protocol, terms.facts(1)
    if config.radius is not None or config.k is not None:
        if config.radius is not None and config.k is not None:
            raise ScenarioError.because("give either radius or k", field="radius")
        chosen = {"radius": config.radius or 0.0, "k": config.k or 0}
        system = system.model_copy(update=chosen)
    return system.request(queries, facts, config.epsilon, name=config.name)


DUTIES: Final[Mapping[str, Duty]] = {
    "server": Duty(
        OwnerConfig, serve=serve_owner, start=partial(OwnerStart, log=_log), begin=begin_owner
    ),
    "client": Duty(AnalystConfig, ask=ask_owner),
}
"""The duties of a data owner and its analysts."""
