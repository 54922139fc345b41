"""The measurement of a figure at few points, for tests."""

import numpy as np
from papers.claims import Measured
from papers.figure import measure_figure
from papers.reproduce import find_figure

from veilring.data.sources import load
from veilring.randomness import Streams


def measure(name: str, subject: object = "iris", splits: int = 2) -> Measured:
    """Measure a figure on a table or other subject; every curve has its shape and is finite."""
    found = measure_figure(
        find_figure(name),
        load(subject) if isinstance(subject, str) else subject,
        splits=splits,
        quick=True,
        streams=Streams(1),
        tell=lambda _: None,
    )
    for curve in found.curves.values():
        assert curve.shape == (splits, len(found.x))
        assert np.isfinite(curve).all()
    return found
