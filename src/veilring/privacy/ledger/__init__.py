"""The durable ledger of privacy budgets: no answer leaves before it is paid for.

One engine counts what analysts spend, each and together, and what each record still has under an
individual filter. A charge and the answer that it pays for are one transaction of one SQLite file.
"""

from veilring.privacy.ledger.budgets import Budgets
from veilring.privacy.ledger.charges import Charge, Outcome, RecordCharge
from veilring.privacy.ledger.ledger import Ledger, open_ledger
from veilring.privacy.ledger.records import Records
from veilring.privacy.ledger.store import back_up_ledger
from veilring.privacy.ledger.totals import AnalystTotal, Totals, read_totals
from veilring.privacy.ledger.units import UNITS, from_units, to_units

__all__ = (
    "UNITS",
    "AnalystTotal",
    "Budgets",
    "Charge",
    "Ledger",
    "Outcome",
    "RecordCharge",
    "Records",
    "Totals",
    "back_up_ledger",
    "from_units",
    "open_ledger",
    "read_totals",
    "to_units",
)
