"""The refusal of wrong input, for tests with many of them."""

from collections.abc import Callable
from typing import Any

import pytest

from veilring.errors import InputError


def require_refused(says: str, call: Callable[..., object], *given: Any, **named: Any) -> None:
    """Require that a call is refused as wrong input, and that its error matches a pattern."""
    with pytest.raises(InputError, match=says):
        call(*given, **named)
