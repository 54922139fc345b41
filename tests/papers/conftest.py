"""The measurement of figures at few points, and the commands of the papers."""

from collections.abc import Callable

import numpy as np
import pytest
from papers.__main__ import run_program
from papers.claims import Measured
from papers.figure import measure_figure
from papers.reproduce import find_figure

from veilring.data.sources import load
from veilring.randomness import Streams

Program = Callable[..., tuple[object, str, str]]


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    """Return a function that runs a command and returns its exit code and its two outputs."""

    def run(command: Callable[..., None], *words: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            run_program(command, "papers", words)
        return ended.value.code, *capsys.readouterr()

    return run


NUMBERS = {"RMSE", "AvRE", "epsilon", "seconds"}
"""The measures that are no fractions."""


def measure(name: str, subject: object = "iris", splits: int = 2) -> Measured:
    """Measure a figure on a table or other subject; its curves have the right shape and values.

    All of its claims can be decided from them.
    """
    figure = find_figure(name)
    found = measure_figure(
        figure,
        load(subject) if isinstance(subject, str) else subject,
        splits=splits,
        quick=True,
        streams=Streams(1),
        tell=lambda _: None,
    )
    assert {key.measure for key in found.curves} == set(figure.measures)
    for key, curve in found.curves.items():
        assert curve.shape == (splits, len(found.x))
        assert np.isfinite(curve).all()
        assert key.measure in NUMBERS or ((curve >= 0) & (curve <= 1)).all()
    for claim in figure.claims:
        evidence = claim.take(found)
        assert evidence.values.shape == (splits, len(evidence.labels))
        assert np.isfinite(evidence.values).all()
        assert len(set(evidence.labels)) == len(evidence.labels)
    return found
