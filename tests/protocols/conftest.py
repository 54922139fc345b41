"""The runtimes of all tests of protocols."""

import pytest

from veilring.testing import ProtocolRunner


@pytest.fixture(params=["memory", "tls", "simulated"])
def run_protocol(request: pytest.FixtureRequest) -> ProtocolRunner:
    """Run a protocol on each runtime of one process.

    `test_served` runs each system in processes, too: these differ in how parties are started, which
    is the same for all protocols and takes a second for five of them.
    """
    return ProtocolRunner(request.param)
