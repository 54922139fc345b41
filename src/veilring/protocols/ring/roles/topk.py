"""The ring member of PP-TopK (Xiong, Chitti and Liu 2007, Algorithm 2)."""

import numpy as np
from numpy.typing import NDArray

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party, broadcast
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm import (
    TopKParameters,
    final_result,
    own_smallest,
    require_bounded,
    start_vector,
    topk_step,
)
from veilring.protocols.ring.messages import TopKResult, TopKVector
from veilring.protocols.ring.roles.checks import check_history, check_result, check_values


async def pp_topk(
    party: Party,
    own: NDArray[np.float64],
    *,
    ring: Ring,
    parameters: TopKParameters,
    first_round: int = 1,
) -> NDArray[np.float64]:
    """Find the k smallest values of the union of all parties' values.

    Takes `len(ring) * parameters.rounds + 1` communication rounds and
    `len(ring) * (parameters.rounds + 1) - 1` messages, whatever the number of runs.

    Args:
        party: This participant.
        own: Its values, shape (runs, any number), in `[parameters.lower, parameters.upper]`.
        ring: The order, the same at all parties.
        parameters: Public.
        first_round: The communication round in which the starter sends.

    Returns:
        The public result, shape (runs, k), ascending; padded with `upper` if the union is smaller.

    Raises:
        InputError: If a value is out of bounds; nothing was sent then.
        ProtocolViolation: If the predecessor or the starter sent what no honest party sends.
        Tampered: If entries are gone that this party had passed on and no honest party displaces.
    """
    G = await topk_turns(party, own, ring=ring, parameters=parameters, first_round=first_round)
    last = len(ring) * parameters.rounds
    if party.me == ring.starter:
        party.round(first_round + last)
        await broadcast(party, TopKResult(values=G))
    else:
        due = first_round + last
        told = await party.receive(TopKResult, sender=ring.starter, due=due)
        before, G = G, told.values
        check_values(G, ring.starter, parameters, last, len(own))
        check_result(party, ring, parameters, before, G)
    return final_result(G, parameters)


async def topk_turns(
    party: Party,
    own: NDArray[np.float64],
    *,
    ring: Ring,
    parameters: TopKParameters,
    first_round: int = 1,
) -> NDArray[np.float64]:
    """Let the vector go round, and stop before its last state is told to anybody.

    Takes `len(ring) * parameters.rounds` communication rounds and as many messages. The arguments
    are those of `pp_topk`, and so are the errors.

    Returns:
        The vector, shape (runs, k): at the starter as it came back after the last round, at the
        others as they passed it on last.
    """
    require_bounded(own, parameters, "own")
    V = own_smallest(own, parameters.k)
    inserted = np.zeros(len(V), dtype=np.bool_)
    G = start_vector(parameters, len(V))
    position, n = ring.position(party.me), len(ring)
    for number in range(1, parameters.rounds + 1):
        hop = (number - 1) * n + position
        if hop > 0:
            before, G = G, await _receive_vector(party, ring, parameters, hop, first_round, len(V))
            if number > 1:
                check_history(party, ring, parameters, before, G)
        G, inserted = topk_step(G, V, inserted, number, parameters, party.rng)
        party.round(first_round + hop)
        await party.send(ring.successor(party.me), TopKVector(round=number, values=G))
    if position == 0:
        last = n * parameters.rounds
        before, G = G, await _receive_vector(party, ring, parameters, last, first_round, len(V))
        check_history(party, ring, parameters, before, G)
    return G


async def _receive_vector(  # noqa: PLR0917  (which vector, and what it has to be)
    party: Party, ring: Ring, parameters: TopKParameters, hop: int, first_round: int, runs: int
) -> NDArray[np.float64]:
    """Receive the vector that has made `hop` hops, and hold it against all that is public."""
    sender = ring.predecessor(party.me)
    message = await party.receive(TopKVector, sender=sender, due=first_round + hop - 1)
    due = (hop - 1) // len(ring) + 1
    if message.round != due:
        raise ProtocolViolation(sender, f"sent round {message.round} where {due} was due")
    check_values(message.values, sender, parameters, hop, runs)
    return message.values
