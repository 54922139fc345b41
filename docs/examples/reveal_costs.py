"""Cost of each `reveal`, for a batch of 1,000 queries, eight parties and messages of 20 ms."""

from typing import Final

import numpy as np

import veilring as vr
from veilring import Cluster, Constant, Facts, LinkModel, Run, Simulated, Topology, simulation
from veilring.data.table import scale_to_unit
from veilring.protocols.ranksearch import Reveal
from veilring.protocols.ranksearch.roles import SearchAnswer

LATENCY: Final = 0.02
PARTIES: Final = 8
REVEALS: Final[tuple[Reveal, ...]] = ("totals", "votes", "label")


def scattered() -> tuple[list[vr.Rows], vr.Rows]:
    """Return queries, and rows of parties, no two of which are equally far from a query."""
    rng = np.random.default_rng(1)
    rows = [vr.Rows(rng.random((250, 5)), rng.integers(0, 10, 250)) for _ in range(PARTIES)]
    return rows, vr.Rows(rng.random((1000, 5)), rng.integers(0, 10, 1000))


def digits() -> tuple[list[vr.Rows], vr.Rows]:
    """Return images of digits, whose pixels have 17 values, and 1,000 of them as queries."""
    train, test = scale_to_unit(vr.load("digits")).split(test_share=0.56, seed=1)
    parts = train.partition(PARTIES, seed=1)
    return [vr.Rows(part.X, part.y) for part in parts], vr.Rows(test.X[:1000], test.y[:1000])


def search(rows: list[vr.Rows], queries: vr.Rows, k: int, reveal: Reveal) -> Run[SearchAnswer]:
    """Label a batch of queries."""
    facts = Facts(parties=PARTIES, features=queries.features.shape[1], classes=10)
    parts = {f"party-{n}": part for n, part in enumerate(rows)}
    setup = vr.RankSearch(k=k, reveal=reveal).setup(parts, facts)
    play = setup.play(queries.features)

    async def main() -> Run[SearchAnswer]:
        topology = Topology(LinkModel(latency=Constant(LATENCY)))
        runtime = Simulated(topology)
        async with Cluster(setup.parties, runtime=runtime, own=setup.resident, seed=1) as cluster:
            return await cluster.run(setup.role, only=play.only, **play.public)

    return simulation.simulate(main())


def main() -> None:
    """Print a line for each table, each k and each `reveal`."""
    print("rows        k  reveal  steps  rounds  messages   megabytes  seconds")
    for make, k in ((scattered, 5), (scattered, 20), (digits, 5)):
        rows, queries = make()
        for reveal in REVEALS:
            run = search(rows, queries, k, reveal)
            steps, cost = len(next(iter(run.results.values())).found.steps), run.cost
            print(
                f"{make.__name__:10}{k:3}  {reveal:6}{steps:7}{cost.rounds:8}{cost.messages:10,}"
                f"{cost.bytes / 1e6:12.1f}{run.seconds:9.2f}"
            )


if __name__ == "__main__":
    main()
