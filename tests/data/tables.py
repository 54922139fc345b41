"""Tables of given features, for tests."""

import numpy as np

from veilring.data.table import Table


def table_of(features: list[list[float]]) -> Table:
    """Return a table of one class with these features."""
    names = tuple(f"f{n}" for n in range(len(features[0])))
    labels = np.zeros(len(features), dtype=np.int64)
    return Table.of("made", np.array(features, dtype=np.float64), labels, names, ("only",))
