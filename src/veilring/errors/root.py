"""The root of the tree, and its one large branch: what goes wrong on the wire."""

__all__ = ("TransportError", "VeilringError")


class VeilringError(Exception):
    """The root of all errors that veilring raises on purpose.

    Subclasses pass their fields to `Exception.__init__`, which is what makes them picklable, and
    build their message in `__str__`.
    """


class TransportError(VeilringError):
    """The base of what can go wrong on the wire."""
