"""A server's best guess of a query, by Bayes' rule on its view of each mechanism."""

import numpy as np
from papers.overheard import Overheard, attack_queries, overheard_response, overheard_walk

from veilring.protocols.treewalk.algorithm.mechanisms import Comparison, bucket_distribution
from veilring.protocols.treewalk.algorithm.tree import Tree, build_tree
from veilring.protocols.treewalk.plan import own_probability
from veilring.randomness import Streams

SIDE = 10.0  # kilometres
RADIUS = 0.7
PLACES = 1000
ALONG = 16  # the number of points on each side of the grid of queries
RUNS = 800
SPLITS = 5  # buckets of 32 places
EPSILONS = (1.0, 2.0, 4.0, 8.0)


def mechanisms(tree: Tree, epsilon: float) -> dict[str, tuple[Overheard, float]]:
    """Return the server's view of each mechanism, and how often the right bucket is found."""
    distribution = bucket_distribution(tree.depth, SPLITS, epsilon)
    found = {"response": (overheard_response(tree, distribution), float(distribution.p))}
    for name, splits in {"walk, 32": SPLITS, "walk, 1": 0}.items():
        steps = tree.depth - splits
        walked = overheard_walk(tree, Comparison(2 * epsilon / steps), splits)
        found[name] = walked, own_probability(steps, epsilon)
    return found


def table() -> None:
    """Print the table for one query, and for ten repetitions without a client's memory."""
    rng = Streams(1).generator("attacks")
    tree = build_tree(rng.random((PLACES, 2)) * SIDE)
    along = (np.arange(ALONG) + 0.5) * SIDE / ALONG
    cells = np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
    blind = attack_queries(mechanisms(tree, 1.0)["response"][0], cells, RADIUS, runs=1, rng=rng)
    near = f"{blind.blind_within:.1%} within 700 m"
    print(f"guess without any message: error {blind.blind_error:.1f} km, {near}")
    print("mechanism   epsilon  own bucket    once: error  within  ten times: error  within")
    for epsilon in EPSILONS:
        for name, (overheard, chance) in mechanisms(tree, epsilon).items():
            once, ten = (
                attack_queries(overheard, cells, RADIUS, runs=RUNS, rng=rng, times=times)
                for times in (1, 10)
            )
            print(
                f"{name:10}  {epsilon:7.1f}  {chance:10.1%}  {once.error:10.1f} km"
                f"  {once.within:6.1%}  {ten.error:13.1f} km  {ten.within:6.1%}"
            )


if __name__ == "__main__":
    table()
