"""Simulated endpoints fulfil the contract of every transport."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.transport.conformance import CHECKS, Endpoints, Maker, run_check

from veilring.randomness import Streams
from veilring.simulation import (
    Constant,
    Exponential,
    LinkModel,
    SimulatedNetwork,
    Topology,
    Uniform,
    simulate,
)

MODELS = {
    "instant": LinkModel(),
    "constant": LinkModel(Constant(0.05)),
    "random": LinkModel(Uniform(0.01, 0.1), Exponential(0.02), 1e8),
}


def over(model: LinkModel) -> Maker:
    """Return a maker of endpoints whose links all use `model`."""

    @asynccontextmanager
    async def make(names: Sequence[str]) -> AsyncIterator[Endpoints]:
        network = SimulatedNetwork(names, Streams(1), topology=Topology(model))
        try:
            yield {name: network.endpoint(name) for name in names}
        finally:
            network.shut_down()

    return make


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("check", CHECKS)
def test_simulated_endpoints_conform(check: str, model: str) -> None:
    """Every check of the contract passes, for any links."""
    simulate(run_check(check, over(MODELS[model])))
