"""`Keeper`: who pays for what a client says, before it says it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Keeper(Protocol):
    """Pays once for each query of a batch, and has the client say the same again after a crash.

    A client calls it before the first private bit leaves, and before each message with such bits.
    Calls return when what they did is durable.
    """

    @property
    def radius(self) -> float:
        """How far apart two queries are at most of which one may not be told from the other.

        A client pays the loss between two such queries. Infinite for any two.
        """
        ...

    def pay(self, epsilon: float, found: int) -> None:
        """Pay for each query, unless that was done before.

        Args:
            epsilon: What one query spends at delta 0, within the radius.
            found: How many places will be found for it.

        Raises:
            BudgetExhausted: If the budget does not suffice. Nothing may be sent then.
            InputError: If the answer is too large to be remembered, or epsilon is not finite.
        """

    def settle(
        self, turn: int, shown: NDArray[np.float64], said: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Return what is to be said: what was said before in this place, or else `said`.

        Args:
            turn: Which message of the session, from 0.
            shown: What the server has shown for each query since the last turn, shape (queries,
                shown); or (1, shown) if it has shown the same for all.
            said: What was drawn for each query, shape (queries, said).

        Raises:
            ProtocolViolation: If the server shows something else than it did before: the same coins
                over other questions would cancel out.
        """
