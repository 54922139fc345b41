"""Both roles in one for a cluster: a party with a request is the analyst."""

from typing import NamedTuple

from veilring.data.table import Rows
from veilring.nodes.party import Party
from veilring.nodes.service import run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.radius.messages import LabelRequest, OwnerRules
from veilring.protocols.radius.owner import Owner, request_labels


class Holding(NamedTuple):
    """The state of a data owner at the beginning of a session."""

    rows: Rows
    budgets: Budgets


async def labelling(party: Party, own: object, *, rules: OwnerRules) -> object:
    """Ask if the party's data are a request; answer it from a fresh ledger if they are rows."""
    if isinstance(own, LabelRequest):
        return await request_labels(party, own, rules=rules)
    assert isinstance(own, Holding)
    (analyst,) = party.peers
    with open_ledger(None, own.budgets) as ledger:
        await Owner(own.rows, rules, ledger, run_inline).answer(party, analyst)
        return ledger.totals().spent
