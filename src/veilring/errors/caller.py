"""The caller's fault: a value, a file, a use or a price that is not allowed."""

from veilring.errors.root import VeilringError

__all__ = ("BudgetExhausted", "ClusterError", "InputError", "ScenarioError", "SimulationError")


class InputError(VeilringError, ValueError):
    """Raised when the caller gave a value that is not allowed.

    Attributes:
        field: The name of the argument or key.
        value: What was given, as text. Never a secret: give its shape or its type instead.
        allowed: What would have been accepted.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, str(value), allowed
        super().__init__(field, self.value, allowed)

    def __str__(self) -> str:
        return f"{self.field} is {self.value}; allowed: {self.allowed}"


class ScenarioError(InputError):
    """Raised when a scenario or configuration file holds mistakes; `field` is the dotted key.

    Attributes:
        others: The mistakes after the first, which is this error's own.
    """

    def __init__(
        self, field: str, value: object, allowed: str, others: "tuple[ScenarioError, ...]" = ()
    ) -> None:
        super().__init__(field, value, allowed)
        self.others = others
        self.args = (field, self.value, allowed, others)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *map(str, self.others)))


class ClusterError(VeilringError):
    """Raised when a cluster cannot be started or used in the way that was asked."""


class BudgetExhausted(VeilringError):
    """Raised when an answer would cost more than a privacy budget has left; nothing was charged.

    Attributes:
        budget: `"total"`, `"analyst"`, `"client"` (one's own at the party that was asked),
            `"member"` (of a party without which there is no answer; a note says which) or
            `"record"`. That of a record is secret, and so is that it
            is exhausted: this one is for the owner's eyes, and a server never sends it.
        asked: What the answer would have cost; none for a record, a member or a client.
        left: What is left; likewise.
        unit: What both are counted in.
    """

    def __init__(
        self, budget: str, asked: float | None = None, left: float | None = None, unit: str = ""
    ) -> None:
        self.budget, self.asked, self.left, self.unit = budget, asked, left, unit
        super().__init__(budget, asked, left, unit)

    def __str__(self) -> str:
        if self.asked is None:
            return f"the privacy budget of a {self.budget} is exhausted"
        missing = f"{self.asked:.12g} {self.unit} asked, {self.left:.12g} left"
        return f"the privacy budget ({self.budget}) is exhausted: {missing}"


class SimulationError(VeilringError):
    """Raised when code under the simulated clock reaches for the real world (sockets, threads)."""
