"""The client's records of a batch in which all queries received equal values."""

import asyncio
import tracemalloc
from functools import partial

import numpy as np
import pytest

from veilring.arrays import Floats
from veilring.errors import InputError, ProtocolViolation
from veilring.privacy.budgets import Budgets
from veilring.privacy.ledger import open_ledger
from veilring.protocols.treewalk.memory import WalkMemory, ask_once
from veilring.protocols.treewalk.roles import Keeper, NearestPlaces

QUERIES = np.random.default_rng(12).random((3, 2))


def test_values_sent_to_all_queries_are_stored_once() -> None:
    """A batch of responses stores one copy of the splits for all queries."""
    queries, splits, peaks = np.arange(2000.0).reshape(1000, 2), np.arange(4096.0), list[int]()

    async def ask(asked: Floats, keeper: Keeper) -> NearestPlaces:
        tracemalloc.start()
        keeper.pay(0.5, 1)
        keeper.settle(0, splits[None], np.zeros((len(asked), 1), np.uint32))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        found = np.zeros((len(asked), 1), np.int64)
        return NearestPlaces(found[:, 0], np.zeros(len(asked)), found, np.zeros((len(asked), 1, 2)))

    asyncio.run(ask_once(WalkMemory(open_ledger(None, Budgets()), "server", b""), queries, ask))
    assert peaks[0] < 4e6  # a copy for each is 33 MB


def test_values_of_one_query_hold_for_all() -> None:
    """A batch with a single row may continue only with an equal row for each query."""
    memory, splits, said = (
        WalkMemory(open_ledger(None, Budgets()), "server", b""),
        np.arange(8.0),
        list[list[int]](),
    )

    async def ask(asked: Floats, keeper: Keeper, shown: Floats) -> NearestPlaces:
        keeper.pay(0.5, 1)
        drawn = np.random.default_rng(len(said)).integers(8, size=(len(asked), 1), dtype=np.uint32)
        said.append(keeper.settle(0, shown, drawn).ravel().tolist())
        raise InputError("answer", "lost", "nothing")

    for shown in (splits[None], np.tile(splits, (3, 1))):
        with pytest.raises(InputError, match="lost"):
            asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=shown)))
    assert said[0] == said[1]
    with pytest.raises(ProtocolViolation, match="different tree"):
        asyncio.run(ask_once(memory, QUERIES, partial(ask, shown=splits[None] + 1)))
