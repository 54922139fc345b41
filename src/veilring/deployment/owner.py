"""`veilring serve` for a data owner: it labels for as long as it is wanted."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from veilring.config import Section
from veilring.data.csv import read_cells
from veilring.deployment.config import AnAddress, FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import answering, require_party
from veilring.deployment.owner_terms import OwnerTerms, load_owner_terms
from veilring.deployment.ranges import OUTSIDE_MAX, OutsideMax
from veilring.errors import InputError, ScenarioError
from veilring.nodes.aside import Threads
from veilring.privacy.ledger import Budgets, Ledger, open_ledger
from veilring.protocols.radius.owner import Owner
from veilring.protocols.rows import Rows
from veilring.transport.tls import LOOPBACK

# Analysts whose batches are worked on at once; each has one turn at a time. Python runs a clique
# search in one thread at a time anyway, and others wait a second or two at the most.
WORKERS_MAX: Final = 4

_log = logging.getLogger("veilring.owner")

_Amount = Annotated[float, Field(ge=0, description="a number of at least 0")]


class BudgetsSection(Section):
    """What may be spent in all, for as long as the ledger lives.

    Attributes:
        total: By all analysts together.
        analyst: By any one analyst.
        analysts: By those who have a budget of their own.
        record: By each row, where rows pay.
    """

    total: _Amount
    analyst: _Amount | None = Field(None, description="a number of at least 0")
    analysts: Mapping[str, _Amount] = Field({}, description="a table of names and numbers")
    record: _Amount | None = Field(None, description="a number of at least 0")


class OwnerConfig(TermsConfig):
    """A data owner that labels analysts' queries.

    Attributes:
        role: `data-owner`.
        rows: The CSV file with its own rows; the label is the last column.
        budgets: What may be spent. To change them, see `amend`.
        ledger: The file that remembers what was spent, and each answer.
        key: Where rows pay: the column that says whose row it is; the same for as long as the
            ledger lives. By default its place in the file does, so that rows may be added at the
            end and never moved.
        amend: Whether other budgets than before are meant, or, without `key`, other cells in the
            same places; what was spent stays spent.
        outside_max: The share of a column's values that may lie outside of its public range. With
            more the party does not start.
        listen: The address to listen at; loopback unless it says otherwise.
    """

    role: Literal["data-owner"] = Field(description="data-owner")
    rows: FilePath
    budgets: BudgetsSection
    ledger: FilePath = "queries.ledger"
    key: str = Field("", description="the header of a column, or nothing")
    amend: bool = Field(default=False, description="true or false")
    outside_max: OutsideMax = OUTSIDE_MAX
    listen: AnAddress = LOOPBACK


async def own(config: OwnerConfig, *, on_ready: Callable[[Owner], None] | None = None) -> None:
    """Label queries until cancelled.

    All files are read and checked first. A cancelled owner lets what it is working on end, and
    leaves in order; whoever was not answered asks the same again and does not pay twice.

    Args:
        config: Which files to read, and where to listen.
        on_ready: Called once queries are answered.

    Raises:
        ScenarioError: If a file does not fit.
        StoreFailed: If the disk fails. What was answered until then is on it.
    """
    identity, roster = load_credentials(config)
    terms = load_owner_terms(Path(config.terms))
    require_party(roster, "identity", identity.name)
    budgets = _budgets(config, terms)
    rows = terms.read_own_rows(Path(config.rows), config.outside_max, _log)
    ids = _ids(config, terms)
    with open_ledger(Path(config.ledger), budgets, amend=config.amend) as ledger:
        if ids is not None:
            _require_known(ledger, config, rows)
        async with Threads(WORKERS_MAX, "labels") as aside:
            owner = Owner(rows, terms.rules, ledger, aside, ids=ids)
            offers = owner.offers(terms.digest)
            place = (identity, roster, config.listen, offers, _log)
            async with answering(*place, limits=config.limits, terms=terms.keys):
                if on_ready is not None:
                    on_ready(owner)
                await owner.failure()


def _budgets(config: OwnerConfig, terms: OwnerTerms) -> Budgets:
    chosen, by_row = config.budgets, terms.labelling.accounting == "record"
    if (chosen.record is not None) != by_row:
        allowed = "a number where rows pay" if by_row else "left out unless rows pay"
        raise ScenarioError("budgets.record", chosen.record, f"{allowed} (labelling.accounting)")
    try:
        return Budgets("epsilon", chosen.total, chosen.analyst, chosen.analysts, chosen.record)
    except InputError as error:
        raise ScenarioError(f"budgets.{error.field}", error.value, error.allowed) from error


def _ids(config: OwnerConfig, terms: OwnerTerms) -> list[str] | None:
    """Return whose each row is, where rows pay."""
    if terms.labelling.accounting != "record":
        return None
    cells = read_cells(Path(config.rows))
    if not config.key:
        return [f"row {place}" for place in range(len(next(iter(cells.values()))))]
    if config.key not in cells:
        raise ScenarioError("key", config.key, f"a column of {Path(config.rows).name}")
    return [str(cell).strip() for cell in cells[config.key]]


def _require_known(ledger: Ledger, config: OwnerConfig, rows: Rows) -> None:
    """Refuse rows that the ledger would take for others, whose budgets are not theirs.

    Raises:
        ScenarioError: If rows were known by another column, or by their places and have moved.
    """
    before, now = ledger.recall("key"), config.key
    if before not in {None, now}:
        known = f"the column {before}" if before else "nothing: by their places"
        raise ScenarioError("key", now or "nothing", f"{known}, by which rows have paid so far")
    ledger.keep("key", now)
    if now:
        return
    count, digest = (ledger.recall("rows") or " ").split(" ")
    first = int(count or 0)
    same = first <= len(rows) and digest == _fingerprint(ledger, rows, first)
    if count and not same and config.amend:
        _log.warning("rows have changed in their places, as `amend` says; take it out again")
    elif count and not same:
        said = "not those of before, in their places, and then more"
        allowed = "rows in the order in which they have paid; or `amend`, if they were corrected"
        raise ScenarioError("rows", said, allowed)
    ledger.keep("rows", f"{len(rows)} {_fingerprint(ledger, rows, len(rows))}")


def _fingerprint(ledger: Ledger, rows: Rows, count: int) -> str:
    """Return the ledger's fingerprint of the first rows."""
    features = rows.features[:count].astype("<f8").tobytes()
    return ledger.fingerprint(features + rows.labels[:count].astype("<i8").tobytes())
