"""A batch of a system, played among parties: its cost, checked, and its leakage."""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from veilring import simulation
from veilring.data.table import Table
from veilring.errors import UnforeseenCost
from veilring.nodes.runtimes import Memory, Simulated
from veilring.protocols.promise import Forecast, Leakage, total_cost
from veilring.protocols.system import Setup
from veilring.randomness import Streams
from veilring.scenarios.comparison.lines import Played
from veilring.scenarios.comparison.question import Question, draw_split
from veilring.scenarios.comparison.tuning import SystemAt
from veilring.scenarios.network import make_topology
from veilring.scenarios.runner import Conditions, Labelled, play_queries
from veilring.simulation import Topology
from veilring.simulation.loop import complete

_TRIALS: Final = 5_000  # of measured leakage: the default of a scenario's report


class BatchPlayed(NamedTuple):
    """The cost of a batch that was played, and its measured leakage if no ε bounds that."""

    cost: Played
    leakage: Leakage | None


def play_batch(contender: SystemAt, table: Table, question: Question) -> BatchPlayed:
    """Play one batch of the first split, and measure its leakage if no ε bounds that.

    Raises:
        RunFailed: If it failed at any party.
        UnforeseenCost: If it cost anything other than its closed form.
    """
    split = draw_split(table, question, 0)
    batch = split.batches(question.queries)[0]
    setup = contender.set_up(split, len(batch))
    leakage = None
    if not contender.system.is_bounded():
        rng = Streams(question.seed).generator("comparison", "leakage")
        leakage = setup.leakage(batch.X, _TRIALS, rng)
    topology = make_topology(question.network, setup.parties)
    return BatchPlayed(_play(setup, batch, topology, question.seed), leakage)


def _play(setup: Setup, asked: Table, topology: Topology, seed: int) -> Played:
    """Play a batch in the simulation and in memory, and check its cost against the closed form."""
    label = partial(play_queries, setup, asked.X, seed=seed, conditions=Conditions())
    simulated = simulation.simulate(label(Simulated(topology)))
    here = complete(lambda: label(Memory()), asyncio.run)
    forecast = _require_forecast(simulated)
    _require_forecast(here)
    return Played(
        forecast.rounds,
        *forecast.traffic,
        *forecast.setup,
        simulated_seconds=sum(batch.seconds for batch in simulated.batches),
        seconds=here.seconds,
    )


def _require_forecast(labelled: Labelled) -> Forecast:
    """Return the cost of all batches, checked against the closed form."""
    for batch in labelled.batches:
        found = Forecast.measured(batch.run.cost)
        if found != batch.forecast:
            raise UnforeseenCost(batch.forecast, found)
    return total_cost(*(batch.forecast for batch in labelled.batches))
