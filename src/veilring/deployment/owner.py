"""The deployed data owner: its terms, its server, and the analyst that queries it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, same_field
from veilring.data.csv import read_cells
from veilring.data.schema import OUTSIDE_MAX, OutsideMax
from veilring.data.table import Rows
from veilring.deployment.config import (
    AMOUNT_ALLOWED,
    BudgetAmount,
    FilePath,
    QueryingConfig,
    ServerConfig,
)
from veilring.deployment.connecting import Client, Server
from veilring.deployment.schema import Schema
from veilring.errors import ScenarioError
from veilring.nodes.offload import Threads
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.radius.algorithm.allocation import AllocationRule
from veilring.protocols.radius.algorithm.conversion import (
    GRID_FEATURES_MAX,
    ByCandidates,
    ByGrid,
    Conversion,
)
from veilring.protocols.radius.algorithm.voting import Mechanism
from veilring.protocols.radius.analyst import ask_nearest, ask_within, convene_owner
from veilring.protocols.radius.messages import LabelRequest
from veilring.protocols.radius.owner import Owner
from veilring.protocols.radius.rules import Accounting, OwnerRules
from veilring.protocols.radius.system import DataOwner, Radius, radius_among

_log = logging.getLogger("veilring.owner")
_analyst_log = logging.getLogger("veilring.analyst")
# Analysts whose batches are in progress at once, each with one turn at a time. Python runs a clique
# search in one thread at a time anyway, and others wait a second or two at most.
WORKERS_MAX: Final = 4
_DECIMALS: Final = 6  # of a radius in the unit cube


class OwnerProtocol(Section):
    """The data owner's labelling: see `veilring.protocols.radius.rules.OwnerRules`.

    Attributes:
        name: `data-owner`.
        accounting: The unit that pays for an answer: the table as a whole, or each row that votes.
        allocation: The rule that divides a batch's budget among its queries.
        mechanism: The mechanism that chooses a label.
        conversion: The conversion of k to radii. `auto` is `grid` with up to six features,
            `candidates` with more, and `none` if rows have budgets of their own.
        rows: The number of rows, if public; 0 if it is private, so that counting costs budget.
        count_share: The share of a request with k that pays for counting the rows.
        conversion_share: The share of the remaining ε that pays for converting k to radii.
        epsilon: The maximum ε of a request.
        batch: The maximum number of queries of a request.
    """

    renamed = MappingProxyType({"epsilon_max": "epsilon", "batch_max": "batch"})

    name: Literal["data-owner"] = same_field(DataOwner, "name")
    accounting: Accounting = Field("batch", description="batch or record")
    allocation: AllocationRule = same_field(DataOwner, "allocation")
    mechanism: Mechanism = same_field(DataOwner, "mechanism")
    conversion: Literal["auto", "grid", "candidates", "none"] = same_field(
        DataOwner, "conversion", allowed="auto, grid, candidates or none"
    )
    rows: int = Field(0, ge=0, description="a whole number of at least 0")
    count_share: float = same_field(DataOwner, "count_share")
    conversion_share: float = same_field(DataOwner, "conversion_share")
    epsilon: float = same_field(DataOwner, "epsilon")
    batch: int = same_field(DataOwner, "batch")


class OwnerTerms(Schema):
    """The terms of a data owner.

    Attributes:
        protocol: The labelling.
    """

    renamed = MappingProxyType({"labelling": "protocol"})

    protocol: OwnerProtocol = OwnerProtocol()

    @property
    @override
    def system(self) -> type[DataOwner]:
        return DataOwner

    @cached_property
    def rules(self) -> OwnerRules:
        """The protocol's public rules."""
        chosen = self.protocol
        return OwnerRules(
            features=self.width,
            classes=len(self.classes),
            accounting=chosen.accounting,
            allocation=chosen.allocation,
            mechanism=chosen.mechanism,
            conversion=self._conversion(),
            rows=chosen.rows or None,
            count_share=chosen.count_share,
            conversion_share=chosen.conversion_share,
            epsilon_max=chosen.epsilon,
            batch_max=chosen.batch,
        )

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        with as_scenario_errors({}, "protocol"):
            _ = self.rules  # which checks its arguments
        return self

    def _conversion(self) -> Conversion | None:
        chosen = self.protocol.conversion
        if chosen == "auto" and self.protocol.accounting == "record":
            return None
        if chosen == "auto":
            return ByGrid() if self.width <= GRID_FEATURES_MAX else ByCandidates()
        named: dict[str, Conversion | None] = {"grid": ByGrid(), "candidates": ByCandidates()}
        return named.get(chosen)


class BudgetsSection(Section):
    """The total budgets, for the lifetime of the ledger.

    Attributes:
        total: The budget of all analysts together.
        analyst: The budget of each analyst.
        analysts: The budgets of individual analysts, by name.
        record: The budget of each row, if rows are charged.
    """

    total: BudgetAmount
    analyst: BudgetAmount | None = Field(None, description=AMOUNT_ALLOWED)
    analysts: Mapping[str, BudgetAmount] = Field({}, description="a table of names and numbers")
    record: BudgetAmount | None = Field(None, description=AMOUNT_ALLOWED)


class OwnerConfig(ServerConfig):
    """A data owner that labels analysts' queries.

    Attributes:
        role: `data-owner`.
        rows: The CSV file with its own rows; the label is the last column.
        budgets: The privacy budgets. To change them, see `amend`.
        ledger: The file with the charges and the answers.
        key: If rows are charged: the column that identifies a row's owner, fixed for the lifetime
            of the ledger. By default a row is identified by its place in the file, so rows may be
            added at the end but never moved.
        amend: Whether to accept changed budgets, or, without `key`, changed cells in the same
            places; charges are kept.
        outside_max: The maximum share of a column's values outside of its public range. If there
            are more, the party does not start.
    """

    role: Literal["data-owner"] = Field(description="data-owner")
    rows: FilePath
    budgets: BudgetsSection
    ledger: FilePath = "queries.ledger"
    key: str = Field("", description="the header of a column, or nothing")
    amend: bool = Field(default=False, description="true or false")
    outside_max: OutsideMax = OUTSIDE_MAX


async def serve_owner(
    config: OwnerConfig, *, on_ready: Callable[[Owner], None] | None = None
) -> None:
    """Label queries until cancelled.

    All files are read and checked first. When cancelled, the owner finishes its current work and
    shuts down in order; a client without an answer can repeat its request without paying twice.

    Args:
        on_ready: Called once the owner answers queries.

    Raises:
        StoreFailed: If the disk fails. Earlier answers are on it.
    """
    server = Server(config, _log)
    terms = OwnerTerms.load(Path(config.terms))
    rows = terms.read_rows(Path(config.rows), config.outside_max, _log)
    ids = _ids(config, terms)
    with _open_ledger(config) as ledger:
        if ids is not None:
            _require_known(ledger, config, rows)
        async with Threads(WORKERS_MAX, "labels") as offload:
            owner = Owner(rows, terms.rules, ledger, offload, ids=ids)
            async with server.listen(owner.offers(terms.digest), terms=terms.keys):
                if on_ready is not None:
                    on_ready(owner)
                await owner.failure()


def begin_owner(config: OwnerConfig) -> bool:
    """Create the ledger of an owner: see `begin_state` of `veilring.deployment.roles`."""
    _open_ledger(config, new=True).close()
    return True


def _open_ledger(config: OwnerConfig, *, new: bool = False) -> Ledger:
    budgets = _budgets(config, OwnerTerms.load(Path(config.terms)))
    return open_ledger(Path(config.ledger), budgets, amend=config.amend, new=new)


def _budgets(config: OwnerConfig, terms: OwnerTerms) -> Budgets:
    chosen, by_row = config.budgets, terms.protocol.accounting == "record"
    if (chosen.record is not None) != by_row:
        allowed = (
            "a number if protocol.accounting is record"
            if by_row
            else "left out unless protocol.accounting is record"
        )
        raise ScenarioError("budgets.record", chosen.record, f"{allowed} (protocol.accounting)")
    with as_scenario_errors({}, "budgets"):
        return Budgets("epsilon", chosen.total, chosen.analyst, chosen.analysts, chosen.record)


def _ids(config: OwnerConfig, terms: OwnerTerms) -> list[str] | None:
    """Return the ids of the rows, if rows are charged."""
    if terms.protocol.accounting != "record":
        return None
    cells = read_cells(Path(config.rows))
    if not config.key:
        return [f"row {place}" for place in range(len(next(iter(cells.values()))))]
    if config.key not in cells:
        raise ScenarioError.because(
            f"{Path(config.rows).name} has no column {config.key!r}", field="key"
        )
    return [str(cell).strip() for cell in cells[config.key]]


def _require_known(ledger: Ledger, config: OwnerConfig, rows: Rows) -> None:
    """Refuse rows that the ledger would mistake for other rows with other budgets."""
    before, now = ledger.recall("key"), config.key
    if before not in {None, now}:
        known = f"the column {before}" if before else "their places"
        raise ScenarioError.because(
            f"rows have been identified by {known} so far; with {now or 'no key'} they would be"
            " different rows",
            field="key",
        )
    ledger.keep("key", now)
    if now:
        return
    count, digest = (ledger.recall("rows") or " ").split(" ")
    first = int(count or 0)
    same = first <= len(rows) and digest == _fingerprint(ledger, rows, first)
    if count and not same and config.amend:
        _log.warning(
            "the corrections announced by `amend` are recorded; remove it from the configuration"
        )
    elif count and not same:
        raise ScenarioError.because(
            "existing rows were changed, moved or removed; restore them and append new rows at the"
            " end, or set `amend` if they were corrected",
            field="rows",
        )
    ledger.keep("rows", f"{len(rows)} {_fingerprint(ledger, rows, len(rows))}")


def _fingerprint(ledger: Ledger, rows: Rows, count: int) -> str:
    """Return the ledger's fingerprint of the first rows."""
    features = rows.features[:count].astype("<f8").tobytes()
    return ledger.fingerprint(features + rows.labels[:count].astype("<i8").tobytes())


class AnalystConfig(QueryingConfig):
    """An analyst that queries a data owner.

    Attributes:
        role: `analyst`.
        ask: The data owner.
        epsilon: The price of the file of queries, as one batch; if rows are charged, the price of
            each query for a row.
        radius: The radius around each query within which rows vote, in the unit cube. `auto`
            follows from the queries, ε and the number of rows, which must be public in the terms.
        k: The approximate number of neighbours that vote, instead of a radius.
        outside_max: The maximum share of a column's values in a file of queries outside of its
            public range. If there are more, the client does not ask.
        name: The name of the request; with a new name, the same queries are answered and charged
            again.
    """

    renamed = MappingProxyType({"r": "radius"})

    role: Literal["analyst"] = Field(description="analyst")
    epsilon: float = Field(gt=0, description="a number above 0")
    radius: Radius = same_field(DataOwner, "radius")
    k: int | None = Field(None, ge=1, description="a whole number above 0, if radius is left out")
    outside_max: OutsideMax = OUTSIDE_MAX
    name: str = Field("", description="a text, or nothing")


async def ask_owner(config: AnalystConfig, queries: Path) -> dict[str, list[object]]:
    """Get the rows of a CSV file labelled as one batch.

    The request's key follows from its content: repeating a failed command returns the same labels
    and is charged once.

    Returns:
        The name of the class of each row, in order, as the column `label`; with k also the radius
        within which rows voted, as `radius`.

    Raises:
        BudgetExhausted: If a budget is insufficient.
        HandshakeError: If the owner cannot be reached.
        VeilringError: If the owner failed to answer.
    """
    client = Client(config)
    terms = OwnerTerms.load(Path(config.terms))
    rows = terms.read_queries(queries, config.outside_max, _analyst_log)
    request = make_request(config, terms, rows)
    terms.rules.check(request)
    async with client.connect(terms.keys) as connection:
        answer = await connection.run(convene_owner(terms.digest), request, rules=terms.rules)
    columns: dict[str, list[object]] = {"label": [terms.classes[each] for each in answer.labels]}
    if config.k is not None:
        columns["radius"] = answer.radii.round(_DECIMALS).tolist()
    return columns


def make_request(
    config: AnalystConfig, terms: OwnerTerms, queries: NDArray[np.float64]
) -> LabelRequest:
    """Return an analyst's request for one batch.

    Args:
        queries: Shape (queries, features), in [0, 1].
    """
    radius = config.radius
    if config.k is not None:
        if radius != "auto":
            raise ScenarioError.because("give either radius or k", field="radius")
        return ask_nearest(queries, config.k, config.epsilon, name=config.name)
    if radius == "auto":
        facts = replace(terms.facts(1), rows=terms.protocol.rows or None)
        radius = radius_among(queries, facts, config.epsilon)
    radii = np.full(len(queries), radius, dtype=np.float64)
    return ask_within(queries, radii, config.epsilon, name=config.name)
