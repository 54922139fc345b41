"""Effect of one malicious party among five on rank search, and its detection.

Each query is asked alone, because a detected attack on one query ends a whole batch.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from veilring import Cluster, load_scenario
from veilring.nodes.run import Outcome
from veilring.randomness import Streams
from veilring.scenarios.prepare import Prepared, prepare

TABLES: Final = ("wine", "digits")
QUERIES: Final = 20
CLIENT, OTHER = "party-0", "party-1"
ALL, STAR = "all-to-all", "star"  # if the client adds up
ATTACKS: Final = (
    (OTHER, "kind = 'substitute-input', label = 1", ALL, "uniform"),
    (OTHER, "kind = 'wrong-counts', by = 0", ALL, "uniform"),
    (OTHER, "kind = 'wrong-counts', by = 3", ALL, "uniform"),
    (OTHER, "kind = 'uneven-counts'", ALL, "uniform"),
    (OTHER, "kind = 'replayer'", ALL, "uniform"),
    (OTHER, "kind = 'wrong-votes', entry = 1", ALL, "uniform"),
    (OTHER, "kind = 'wrong-votes', entry = 1", ALL, "distance"),
    (OTHER, "kind = 'wrong-votes', entry = 1, taken = 0", ALL, "uniform"),
    (OTHER, "kind = 'wrong-votes', by = 2, entry = 1, taken = 0", ALL, "uniform"),
    (OTHER, "kind = 'take-over', by = 1, entry = 1", ALL, "uniform"),
    (OTHER, "kind = 'take-over', by = 1, entry = 1", ALL, "distance"),
    (OTHER, "kind = 'take-over', by = 5, entry = 1", ALL, "uniform"),
    (OTHER, "kind = 'take-over', by = 5, entry = 1", STAR, "uniform"),
    (CLIENT, "kind = 'take-over', by = 5, entry = 1", STAR, "uniform"),
    (OTHER, "kind = 'wrong-counts', victim = 'party-3'", ALL, "uniform"),
    (CLIENT, "kind = 'wrong-counts', victim = 'party-3'", STAR, "uniform"),
    (OTHER, "kind = 'wrong-votes', entry = 1, taken = 0, victim = 'party-3'", ALL, "uniform"),
    (CLIENT, "kind = 'wrong-votes', entry = 1, taken = 0, victim = 'party-3'", STAR, "uniform"),
    (CLIENT, "kind = 'ask-twice', victim = 'party-3'", ALL, "uniform"),
    (CLIENT, "kind = 'ask-twice', victim = 'party-3'", STAR, "uniform"),
    (CLIENT, "kind = 'made-up-totals', factor = 0.9", STAR, "uniform"),
)


def main() -> None:
    """Print a line for each attack: the share of queries that detect it, and of wrong labels."""
    _print("party", "adversary", "sum", "weights", TABLES)
    for liar, lie, adding, weights in ATTACKS:
        found = [measure(table, adding, liar, lie, weights) for table in TABLES]
        _print(liar, lie, adding, weights, [cell(*shares) for shares in found])


def _print(liar: str, lie: str, adding: str, weights: str, cells: Sequence[str]) -> None:
    columns = "".join(f"{each:26}" for each in cells)
    print(f"{liar:9}{lie:68}{adding:12}{weights:10}{columns}".rstrip())


def cell(found: float, turned: float) -> str:
    """Return a cell of the table."""
    shares = (f"{found:.0%} detected" if found else "", f"{turned:.0%} wrong" if turned else "")
    return ", ".join(filter(None, shares)) or "no effect"


def measure(table: str, adding: str, liar: str, lie: str, weights: str) -> tuple[float, float]:
    """Return the share of queries that detect the attack, and the share with a wrong label."""
    settings = (
        "protocol.name=rank-search",
        "parties.count=5",
        f"data.source={table}",
        f"data.queries={QUERIES}",
        f"protocol.sum={adding}",
        f"protocol.weights={weights}",
        f"adversaries.{liar}={{ {lie} }}",
    )
    prepared = prepare(load_scenario("wine", settings), Streams(1))
    return asyncio.run(_ask_one_by_one(prepared, liar))


async def _ask_one_by_one(prepared: Prepared, liar: str) -> tuple[float, float]:
    setup, noticed, turned = prepared.setup, 0, 0
    async with Cluster(setup.parties, own=setup.resident, seed=1) as cluster:
        for number, label in enumerate(prepared.reference):
            play = setup.play(prepared.held_out.X[number : number + 1])
            outcomes = await cluster.play(
                setup.role, only=play.only, adversaries=prepared.adversaries, **play.public
            )
            honest = [outcome for outcome in outcomes if outcome.party != liar]
            found = is_noticed(honest)
            noticed += found
            turned += not found and any(play.labels(each.result)[0] != label for each in honest)
    return noticed / len(prepared.reference), turned / len(prepared.reference)


def is_noticed(honest: Sequence[Outcome]) -> bool:
    """Return whether honest parties end without a label.

    One of them has detected the attack, or the adversary, whose own role cannot go on with a victim
    that was sent other totals, has stopped first.
    """
    return any(each.error is not None for each in honest)


if __name__ == "__main__":
    main()
