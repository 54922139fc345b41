"""The simple attack on PP-TopK: whatever is new in a vector belongs to who passed it on.

Source: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", SAC
2007, Section 6.6, where the adversary is the successor alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilring.errors import InputError
from veilring.protocols.ring.algorithm.multisets import difference, overlap
from veilring.protocols.ring.attacks.views import TopKView


@dataclass(frozen=True, slots=True)
class Success:
    """How good claims are, over all rounds and runs.

    A *new entry* is one that the simple attack claims. An attack decides for each whether it is
    the victim's own.

    Attributes:
        new: How many new entries there were, a run.
        claims: How many of them were claimed, a run.
        precision: The fraction of claims that are right; 0 if there was none.
        recall: The fraction of the victim's values that were claimed; 0 if it has none.
        accuracy: The fraction of new entries that were decided right, claimed or not; 1 if there
            was none.
        gain: Right claims less wrong ones, a run.
    """

    new: float
    claims: float
    precision: float
    recall: float
    accuracy: float
    gain: float


def claim_new(view: TopKView, victim: str) -> NDArray[np.float64]:
    """Return what the simple attack claims as the victim's, round by round.

    It claims what is in the vector that the victim passed on and not in the last vector before it
    that the coalition saw. For a successor alone that is the vector that it passed on itself, so
    it claims what any of the n - 1 others put in. With the predecessor in the coalition it is the
    vector that the victim received: the claims are exactly what the victim put in, real or noise.
    The start vector and the result are public, and used.

    Args:
        view: What the coalition saw.
        victim: An honest party.

    Returns:
        Shape (rounds, T, k), rows ascending and filled up with `+inf`. A round in which the
        coalition did not see the vector that the victim passed on holds no claims.

    Raises:
        InputError: If the victim is in the coalition or not in the ring.
    """
    if victim in view.members:
        raise InputError("victim", victim, "a party outside the coalition")
    hops = view.hops_of(victim)
    claims = np.full((len(hops), *view.vectors[0].shape), np.inf)
    for turn, hop in enumerate(hops):
        passed = view.vectors.get(hop + 1)
        if passed is not None:
            claims[turn] = difference(passed, view.vectors[view.last_before(hop)])
    return claims


def owned(claims: NDArray[np.float64], own: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which claims are values of the victim, in the shape of the claims.

    Args:
        claims: Shape (rounds, T, k), filled up with `+inf`.
        own: The victim's real values, shape (T, m), filled up with `+inf`.
    """
    equal = (claims[..., :, None] == own[:, None, :]).any(axis=-1)
    return np.asarray(equal & np.isfinite(claims))


def judge_claims(
    claims: NDArray[np.float64],
    own: NDArray[np.float64],
    decided: NDArray[np.bool_] | None = None,
) -> Success:
    """Hold claims against the truth.

    Args:
        claims: What `claim_new` returned, shape (rounds, T, k).
        own: The victim's k smallest values, shape (T, k), filled up with `+inf`.
        decided: Which of the claims the attack makes, same shape; all of them if left out.
    """
    new = np.isfinite(claims)
    made = new if decided is None else decided & new
    right = owned(claims, own)
    runs, entries = claims.shape[1], int(new.sum())
    kept = np.where(made, claims, np.inf)
    found = overlap(own, np.sort(np.concatenate(kept, axis=1), axis=1)).sum()
    hits, count = int((made & right).sum()), int(made.sum())
    return Success(
        new=entries / runs,
        claims=count / runs,
        precision=hits / max(1, count),
        recall=float(found / max(1, np.isfinite(own).sum())),
        accuracy=float((made == right)[new].mean()) if entries else 1.0,
        gain=(2 * hits - count) / runs,
    )
