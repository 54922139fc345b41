"""The roles of the LDP family: one coroutine each, over a `Party`."""

from veilring.protocols.ldp.roles.gather import gather
from veilring.protocols.ldp.roles.submit import Settled, submit

__all__ = ("Settled", "gather", "submit")
