"""Random rows for parties of a ring."""

import numpy as np

from veilring.data.table import Rows


def dealt(parties: int, rng: np.random.Generator, rows: int = 4) -> list[Rows]:
    """Return the rows of the given number of parties: three features, three classes."""
    labels = rng.integers(0, 3, (parties, rows))
    return [Rows(rng.random((rows, 3)), each) for each in labels]
