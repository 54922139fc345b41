"""Where reports are kept: SQLite, or PostgreSQL by URL."""

from veilring.protocols.ldp.store.base import Kept, Store
from veilring.protocols.ldp.store.opening import back_up, open_store
from veilring.protocols.ldp.store.senders import Quotas, Senders

__all__ = ("Kept", "Quotas", "Senders", "Store", "back_up", "open_store")
