"""The built-in adversaries: their refusals and their documentation."""

from pathlib import Path

import pytest

from veilring.errors import InputError
from veilring.nodes.adversary import Adversary
from veilring.protocols.ring.adversaries import (
    ADVERSARIES,
    DeflateTopK,
    InflateTopK,
    InputSubstitution,
    WrongSum,
)

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "adversaries.md"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InputSubstitution(-1), "label is -1"),
        (lambda: InflateTopK(0), "entries is 0"),
        (lambda: InflateTopK(1, 0), "first_round is 0"),
        (lambda: DeflateTopK(1.5), "factor is 1.5"),
        (lambda: WrongSum(float("inf")), "by is inf"),
        (lambda: WrongSum(1, -1), "entry is -1"),
    ],
)
def test_an_invalid_adversary_is_refused(make: type[Adversary], message: str) -> None:
    """The error gives the allowed values."""
    with pytest.raises(InputError, match=message):
        make()


def test_each_built_in_adversary_is_on_the_page() -> None:
    """The page on adversaries has a line for each name that a scenario can use."""
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in ADVERSARIES if f"| `{name}` |" not in page} == set()
