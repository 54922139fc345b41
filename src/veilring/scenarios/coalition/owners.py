"""Whose the nearest distances are: from one session, and from those that failed before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.ring.attacks.repetitions import expected_hits, find_owners, recurring
from veilring.protocols.ring.attacks.views import TopKView
from veilring.scenarios.findings import Named


def name_owners(
    view: TopKView, failed: Sequence[TopKView], own: Mapping[str, NDArray[np.float64]]
) -> Named:
    """Name the likeliest owner of each distance in the result, and any if several are as likely.

    Args:
        view: What the coalition saw of the session that succeeded.
        failed: What it saw of those that failed before, in which more parties may have taken part.
        own: The k smallest distances of the parties outside the coalition, shape (Q, k).
    """
    candidates = tuple(sorted(own))
    result = view.result
    if result is None:
        return Named(0, 0.0, 0.0, 0.0, 0, 0)
    held = np.stack(
        [(own[party][:, None] == result[..., None]).any(-1) for party in candidates], -1
    )
    real = held.any(axis=-1)
    alone = _posterior(view, result, candidates)
    with_failed = alone.copy()
    for session in failed:
        # All are equally likely beforehand, so the posteriors of single sessions multiply. What
        # was not seen there says nothing: a row of a party that is lost may have displaced it.
        told = _held_anywhere(session, result)[..., None]
        with_failed *= np.where(told, _posterior(session, result, candidates), 1.0)
    mine = np.concatenate([own[party] for party in candidates], axis=1)
    met = [np.intersect1d(*pair) for pair in zip(_seen_again(view, failed), mine, strict=True)]
    hidden = [np.setdiff1d(*pair) for pair in zip(met, result, strict=True)]
    return Named(
        values=int(real.sum()),
        guessed=float((held.sum(axis=-1) / len(candidates))[real].sum()),
        named=expected_hits(alone[real], held[real]),
        with_retries=expected_hits(with_failed[real], held[real]),
        recurred=sum(values.size for values in met),
        recurred_hidden=sum(values.size for values in hidden),
    )


def _posterior(
    session: TopKView, values: NDArray[np.float64], candidates: Sequence[str]
) -> NDArray[np.float64]:
    """Return the posterior over those who are still there, up to a factor, (Q, k, candidates)."""
    owners = find_owners([session], values)
    places = [owners.candidates.index(party) for party in candidates]
    return owners.posterior[..., places]


def _held_anywhere(session: TopKView, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values of (Q, k) the coalition saw in a session."""
    seen = np.concatenate([*session.vectors.values()], axis=1)
    return np.asarray((values[:, :, None] == seen[:, None]).any(axis=-1))


def _seen_again(view: TopKView, failed: Sequence[TopKView]) -> tuple[NDArray[np.float64], ...]:
    """Return the values that were seen in several sessions, for each query.

    Where somebody sat does not matter for it, so that the ring that succeeded stands for all.
    """
    alike = [replace(session, order=view.order, members=view.members) for session in failed]
    return recurring([*alike, view])
