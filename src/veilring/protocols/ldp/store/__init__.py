"""Where reports are kept: SQLite, or PostgreSQL by URL."""

from veilring.protocols.ldp.store.base import Kept, Store
from veilring.protocols.ldp.store.opening import open_store

__all__ = ("Kept", "Store", "open_store")
