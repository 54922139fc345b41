"""Holding what peers sent against what honest peers can send; each check names whom it convicts.

The mathematics, and why no honest run fails a check, is in `algorithm.topk.highest_entry` and
`algorithm.consistency`.
"""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import ProtocolViolation, Tampered
from veilring.nodes.party import Party
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm import (
    TopKParameters,
    could_be_totals,
    could_become,
    highest_entry,
)
from veilring.protocols.ring.algorithm.votes import Weights


def check_values(
    values: NDArray[np.float64], sender: str, parameters: TopKParameters, hops: int, runs: int
) -> None:
    """Hold a vector that has made some hops since the start against all that is public.

    Raises:
        ProtocolViolation: If its shape, its range or its order is wrong; it names the sender.
    """
    expected = runs, parameters.k
    if values.shape != expected:
        raise ProtocolViolation(sender, f"sent a vector of {values.shape}, not {expected}")
    highest = highest_entry(parameters, hops)
    if not np.all((values >= parameters.lower) & (values <= highest)):
        raise ProtocolViolation(sender, "sent a vector outside the public bounds")
    if not np.all(values[:, :-1] <= values[:, 1:]):
        raise ProtocolViolation(sender, "sent a vector that is not ascending")


def check_history(
    party: Party,
    ring: Ring,
    parameters: TopKParameters,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
) -> None:
    """Hold a vector that has gone round against what this party had passed on.

    Raises:
        Tampered: If entries are gone that honest parties could not have displaced. All others had
            the vector meanwhile, and those after the culprit could not know.
    """
    if not could_become(before, after, len(ring) - 1, parameters).all():
        party.accuse(Tampered(_after(ring, party.me), "took entries out of the vector"))


def check_result(
    party: Party,
    ring: Ring,
    parameters: TopKParameters,
    before: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    """Hold the starter's result against what this party, not the starter, had passed on last.

    Raises:
        ProtocolViolation: If this party is the last, and the starter sent something else than it
            was given.
        Tampered: If entries are gone that honest parties could not have displaced. The starter and
            those in between had the vector meanwhile.
    """
    hops = len(ring) - 1 - ring.position(party.me)
    if could_become(before, result, hops, parameters).all():
        return
    if hops == 0:
        what = "sent another result than the last vector"
        party.accuse(ProtocolViolation(ring.starter, what))
    else:
        suspects = _after(ring, party.me)[: hops + 1]
        party.accuse(Tampered(suspects, "took entries out of the result"))


def check_totals(
    party: Party,
    totals: NDArray[np.float64],
    own: NDArray[np.float64],
    nearest: NDArray[np.float64],
    *,
    weights: Weights,
    upper: float,
) -> None:
    """Hold vote totals against this party's own votes and the public result.

    Raises:
        Tampered: If no honest votes have these totals. Anybody may have added anything.
    """
    if not could_be_totals(totals, own, nearest, weights, upper).all():
        party.accuse(Tampered(party.peers, "made vote totals that no honest votes have"))


def _after(ring: Ring, party: str) -> tuple[str, ...]:
    """Return all others in the order in which the vector reaches them."""
    place = ring.position(party)
    return (*ring.order[place + 1 :], *ring.order[:place])
