"""The pytest plugin: the fixtures `run_protocol` and `explore`, and the choice of runtimes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from veilring.testing import ProtocolRunner

if TYPE_CHECKING:  # pytest imports a plugin in every test run of its user, so imports must be light
    from veilring.nodes.cluster import RuntimeName
    from veilring.testing.exploring import Campaign

_INI: Final = "veilring_runtimes"
_FIXTURE: Final = "veilring_runtime"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option."""
    parser.addini(
        _INI,
        "the runtimes on which run_protocol runs each test",
        type="args",
        default=["memory", "simulated"],
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise each test that uses a runtime over those that the ini option lists."""
    if _FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(_FIXTURE, metafunc.config.getini(_INI))


@pytest.fixture
def run_protocol(veilring_runtime: "RuntimeName") -> ProtocolRunner:
    """Run a protocol on a fresh cluster, once on each runtime."""
    return ProtocolRunner(veilring_runtime)


@pytest.fixture
def explore() -> "Callable[..., Campaign]":
    """Explore a role as `veilring.testing.exploring.explore` does, and fail on any violation.

    It also fails if a mark of `sometimes` was never reached.
    """

    def explored(*given: Any, **options: Any) -> "Campaign":
        __tracebackhide__ = True  # pytest points at the caller
        from veilring.testing import exploring  # noqa: PLC0415  (light until it is used)

        campaign = exploring.explore(*given, **options)
        campaign.check()
        return campaign

    return explored
