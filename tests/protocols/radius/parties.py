"""An owner of sixty rows of two classes, its analysts' requests, and both roles in one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from veilring.data.table import Rows
from veilring.nodes.party import Party
from veilring.nodes.service import Offload, run_inline
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import Ledger, open_ledger
from veilring.protocols.promise import Facts
from veilring.protocols.radius.messages import LabelRequest, OwnerRules
from veilring.protocols.radius.owner import Owner, ask_within, request_labels
from veilring.protocols.radius.system import DataOwner

DRAWS = np.random.default_rng(9)
ROWS = Rows(DRAWS.random((60, 2)), DRAWS.integers(2, size=60))
QUERIES = DRAWS.random((5, 2))
RADII = np.full(5, 0.3)
RULES = DataOwner(conversion="grid").bind(Facts(1, 2, 2, rows=60))
WITHOUT_LIMIT = Budgets()


def asked(name: str, epsilon: float = 0.5) -> LabelRequest:
    """Return a request for the labels of the queries."""
    return ask_within(QUERIES, RADII, epsilon, name=name)


@contextmanager
def opened(
    budgets: Budgets = WITHOUT_LIMIT,
    path: Path | None = None,
    *,
    rows: Rows = ROWS,
    rules: OwnerRules = RULES,
    offload: Offload = run_inline,
) -> Iterator[tuple[Owner, Ledger]]:
    """Open an owner and its ledger, which is in memory or goes on in a file."""
    with open_ledger(path, budgets, new=path is None or not path.exists()) as ledger:
        yield Owner(rows, rules, ledger, offload), ledger


async def labelling(party: Party, own: object, *, rules: OwnerRules = RULES) -> object:
    """Ask if the party's data are a request; answer it if they are budgets."""
    if isinstance(own, LabelRequest):
        return await request_labels(party, own, rules=rules)
    assert isinstance(own, Budgets)
    (analyst,) = party.peers
    with opened(own, rules=rules) as (owner, _):
        await owner.answer(party, analyst)
    return None
