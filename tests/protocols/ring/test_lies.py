"""Audits of lies: no honest party is named, and different queries are detected."""

from typing import NamedTuple

import numpy as np
import pytest
from tests.protocols.ring.worlds import bound

from veilring.arrays import Floats
from veilring.data.table import Rows
from veilring.nodes.party import Party
from veilring.protocols.ring import SumMethod
from veilring.protocols.ring.roles import private_knn
from veilring.testing.lies import Lies, Verdict, audit_lies

KIND = "ring.queries"


class Own(NamedTuple):
    """A party's rows, and the client's batch."""

    rows: Rows
    queries: Floats | None = None


def inputs(parties: int) -> list[Own]:
    """Return some rows for each party, and three queries for the first."""
    rng = np.random.default_rng(0)
    rows = [Rows(rng.random((20, 2)), rng.integers(0, 3, 20)) for _ in range(parties)]
    return [Own(rows[0], rng.random((3, 2))), *map(Own, rows[1:])]


async def in_one_ring(party: Party, own: Own, *, method: SumMethod) -> list[int]:
    """Label the batch of the first party."""
    parameters = bound(2, 3, k=2, P0=0.25, d=0.25, rounds=2, method=method)
    answer = await private_knn(
        party, own.rows, client=party.parties[0], parameters=parameters, queries=own.queries
    )
    return list(answer.labels.tolist())


def assert_nobody_honest_is_named(lies: Lies) -> None:
    """A client that sends different queries, or different numbers of queries, is suspected."""
    lies.assert_none(Verdict.MISNAMED, Verdict.UNNAMED, Verdict.HANG)
    asked = lies.about(KIND)
    asked.assert_none(Verdict.UNNOTICED)
    changed = [lie for lie in asked.rows if lie.adversary.endswith("features")]
    assert changed
    assert {lie.verdict for lie in changed} == {Verdict.SUSPECTS}


@pytest.mark.slow
@pytest.mark.parametrize("method", [SumMethod(), SumMethod("shares"), SumMethod("masks")])
def test_lies_in_one_ring(method: SumMethod) -> None:
    """Each lie about each message of three parties is audited."""
    assert_nobody_honest_is_named(audit_lies(in_one_ring, inputs(3), public={"method": method}))
