"""Parties in a ring on a simulated wide-area network: one ring beside rings of rings."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from veilring.errors import InputError
from veilring.nodes.ring import PARTIES_MIN
from veilring.protocols.ring.nested import group_sizes
from veilring.scenarios.runner import Progress
from veilring.scenarios.scale.curves import Curve, Panel, Study
from veilring.scenarios.scale.fits import Fit, closed_form
from veilring.scenarios.scale.wan import Batch, simulate

QUICK: Final = (9, 32, 128, 512, 1_024)
FULL: Final = (9, 32, 128, 512, 2_048, 8_192, 32_768)
NESTED_MIN: Final = PARTIES_MIN**2
"""The fewest parties that rings of rings take."""
PARTIES_MAX: Final = 10**9  # no federation has as many: beyond it a model is asked nothing

_MODEL: Final = "times the longest chain"
_SECONDS: Final = Panel("parties", "simulated seconds a batch")
_BY_GROUPS: Final = Panel("groups", "simulated seconds a batch", is_closed=True)


def best_groups(batch: Batch, parties: int) -> int:
    """Return with how many groups a batch should be quickest: about the root of the parties.

    Raises:
        InputError: If there are too few parties for rings of rings.
    """
    group_sizes(parties, PARTIES_MIN)  # refuses too few
    root = math.isqrt(parties)
    most = parties // PARTIES_MIN
    near = range(max(PARTIES_MIN, root // 2), min(most, 2 * root + PARTIES_MIN) + 1)
    return min(near, key=lambda groups: batch.chain(parties, groups).rounds)


def largest(seconds: Callable[[int], float], within: float, least: int) -> int | None:
    """Return the most parties whose batch a model says to be done within some seconds.

    Args:
        seconds: Of a batch among so many parties; it does not fall.
        within: The limit.
        least: The fewest parties that there can be.

    Returns:
        At most `PARTIES_MAX`; none if even the fewest take longer.
    """
    if seconds(least) > within:
        return None
    below, above = least, 2 * least
    while above < PARTIES_MAX and seconds(above) <= within:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if seconds(middle) <= within else (below, middle)
    return min(below, PARTIES_MAX)


def study_ring(
    batch: Batch,
    parties: Sequence[int] = QUICK,
    *,
    within: float = 60.0,
    tell: Progress | None = None,
) -> Study:
    """Simulate a batch for each number of parties, in one ring and in rings of rings.

    Args:
        batch: What is asked over which links.
        parties: Numbers of parties, ascending, each at least 9; at least two.
        within: In how many seconds a batch shall be labelled.
        tell: Told how far it is.

    Raises:
        InputError: If there are too few numbers or one is too small.
        ScenarioError: If the network does not fit.
    """
    if len(parties) < 2 or min(parties) < NESTED_MIN or sorted(set(parties)) != list(parties):  # noqa: PLR2004  (a model and a point to leave out)
        raise InputError("sizes", list(parties), f"two or more from {NESTED_MIN} up, ascending")
    ways = {"one ring": [0] * len(parties)}
    ways["rings of rings"] = [best_groups(batch, n) for n in parties]
    curves, done, total = list[Curve](), 0, 2 * len(parties) + 1
    for name, groups in ways.items():
        points, beside = dict[float, float](), dict[str, list[float]]()
        for n, g in zip(parties, groups, strict=True):
            if tell is not None:
                tell(f"{name}, {n:,} parties", done, total)
            run = simulate(batch, n, g)
            points[n] = run.seconds
            columns = {"rounds": run.cost.rounds, "messages": run.cost.messages}
            columns |= {"bytes": run.cost.bytes}
            for what, value in (({"groups": g} if g else {}) | columns).items():
                beside.setdefault(what, []).append(value)
            done += 1
        form = _chain_of(batch, nested=name != "one ring")
        kept = {what: tuple(values) for what, values in beside.items()}
        basis = closed_form(_MODEL, form)
        curves.append(Curve.fitted(name, _SECONDS, points, basis, kept))
    if tell is not None:
        tell("groups", done, total)
    curves.append(_by_groups(batch, _middle(parties)))
    setting = tuple(_setting(batch))
    findings = tuple(_findings(batch, curves[0].fit, curves[1].fit, within))
    title = "A batch of PP-kNN over the number of parties"
    return Study("ring", title, setting, simulated=True, curves=tuple(curves), findings=findings)


def _chain_of(batch: Batch, *, nested: bool) -> Callable[[float], float]:
    if nested:
        return lambda n: batch.expected_seconds(round(n), best_groups(batch, round(n)))
    return lambda n: batch.expected_seconds(round(n))


def _middle(parties: Sequence[int]) -> int:
    """Return the number of parties among which groups of all sizes are tried."""
    return parties[len(parties) // 2]


def _by_groups(batch: Batch, parties: int) -> Curve:
    """Try groups of all sizes among one number of parties."""
    most, best = parties // PARTIES_MIN, best_groups(batch, parties)
    tried = {PARTIES_MIN, most, best, math.isqrt(best * PARTIES_MIN), math.isqrt(best * most)}
    points: dict[float, float] = {
        groups: simulate(batch, parties, groups).seconds for groups in sorted(tried)
    }
    form = lambda groups: batch.expected_seconds(parties, _whole(groups, most))  # noqa: E731  (one line of a model)
    basis = closed_form(_MODEL, form)
    return Curve.fitted(f"rings of rings of {parties:,} parties", _BY_GROUPS, points, basis)


def _whole(groups: float, most: int) -> int:
    """Return the nearest number of groups that there can be."""
    return min(max(round(groups), PARTIES_MIN), most)


def _setting(batch: Batch) -> Iterator[str]:
    network, terms = batch.network, batch.parameters()
    nested = batch.parameters(PARTIES_MIN + batch.k)
    yield f"{batch.queries} queries of {batch.features} features, k = {batch.k}, seed {batch.seed}"
    yield f"{terms.rounds} turns of PP-TopK in one ring, {nested.rounds} on each of two levels"
    law = ", ".join(f"{name} {value}" for name, value in network.latency.items())
    bandwidth = network.bandwidth_bytes_per_second
    limit = "no limit to bandwidth" if bandwidth is None else f"{bandwidth:,.0f} bytes/s a link"
    yield f"latency: {law}; {limit}; computing takes no time"
    yield "messages, bytes and rounds are equal to the closed forms at each point"


def _findings(batch: Batch, one: Fit, nested: Fit, within: float) -> Iterator[str]:
    for name, fit, least in (
        ("one ring", one, PARTIES_MIN),
        ("rings of rings", nested, NESTED_MIN),
    ):
        most = largest(fit, within, least)
        if most is None:
            yield f"within {within:g} s, {name}: not even {least} parties"
            continue
        detail = ""
        if name != "one ring":
            groups = best_groups(batch, most)
            detail = f", in {groups:,} groups of up to {group_sizes(most, groups)[0]:,}"
        yield f"within {within:g} s, {name}: up to {most:,} parties by the model{detail}"
    yield "the best number of groups is about the root of the number of parties"
