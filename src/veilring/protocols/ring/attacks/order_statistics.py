"""Likelihoods of what is known about a party's smallest values, exactly, by integration.

A party holds N independent rows, uniform on [0, 1]. Its M smallest V[1] < ... < V[M] have the joint
density `N!/(N-M)! (1 - V[M])**(N-M)`. What an adversary knows of them is, in PP-TopK, a product of
factors that each depend on one value only. Then the likelihood is an integral over M dimensions
that splits into M integrals over one, each a running integral of the one before.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.special import xlog1py

Factor = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]
"""Called with i (from 1) and values of V[i], shape (T, any): the logarithm of their factor."""

# Exact for polynomials up to degree 47 in each cell.
NODES: Final = 24
# A cell from a to b must resolve x**M, which grows by a factor of about exp(M (b - a)/a) on it, and
# where it is of any weight (1 - x)**N, which falls as fast. With this growth, 12 digits are left.
_GROWTH: Final = 16.0

_z, _w = legendre.leggauss(NODES)
_degrees = np.arange(NODES) + 0.5
# On [0, 1]: the integral over a cell, and from its lower end up to each node.
_WHOLE: Final = _w / 2
_UP_TO_NODE: Final = (
    legendre.legval(
        _z,
        legendre.legint((legendre.legvander(_z, NODES - 1) * _w[:, None] * _degrees).T, lbnd=-1),
    ).T
    / 2
)


class QuadratureGrid:
    """Gauss-Legendre nodes on [0, 1], in cells that end where the factors of a run jump.

    Args:
        jumps: Shape (T, any number), in any order; what is outside [0, 1] is moved to its ends.
        depth: M, at least 1.
        rows: N, at least M.
    """

    def __init__(self, jumps: NDArray[np.float64], depth: int, rows: int) -> None:
        ratio = 1 + min(1.0, _GROWTH / depth)
        powers = ratio ** -np.arange(np.ceil(np.log(rows * depth) / np.log(ratio)) + 1)
        runs = len(jumps)
        fixed = np.broadcast_to(np.append(0.0, powers), (runs, len(powers) + 1))
        ends = np.sort(np.concatenate([np.clip(jumps, 0, 1), fixed], axis=1), axis=1)
        self._widths = np.diff(ends, axis=1)
        nodes = ends[:, :-1, None] + self._widths[:, :, None] * (_z + 1) / 2
        self.nodes: NDArray[np.float64] = nodes.reshape(runs, -1)

    def integral(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral over [0, 1] of a function given at the nodes, shape (T,)."""
        cells: NDArray[np.float64] = (self._split(f) @ _WHOLE) * self._widths
        return np.asarray(cells.sum(axis=1))

    def running(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral from 0 up to each node of a function given at the nodes."""
        split = self._split(f)
        cells = (split @ _WHOLE) * self._widths
        before = cells.cumsum(axis=1) - cells
        inside = (split @ _UP_TO_NODE.T) * self._widths[:, :, None]
        return np.asarray((before[:, :, None] + inside).reshape(f.shape))

    def _split(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        return f.reshape(len(f), -1, NODES)


def integrate_log_likelihood(  # noqa: PLR0917  (a grid, a factor, what is known exactly, M and N)
    grid: QuadratureGrid,
    factor: Factor,
    known: NDArray[np.float64],
    count: NDArray[np.int64],
    depth: int,
    rows: int,
) -> NDArray[np.float64]:
    """Integrate the density of V[1], ..., V[M] times the factors, all but the constant N!/(N-M)!.

    Args:
        grid: Whose cells end where a factor jumps.
        factor: What is known of one value, as a logarithm.
        known: Values that are known exactly and so not integrated over, shape (T, any), ascending:
            the first ones of V.
        count: How many of them there are, shape (T,), 0 to M.
        depth: M, at most N.
        rows: N.

    Returns:
        The logarithm, shape (T,); `-inf` if what is known cannot be.
    """
    log = np.zeros(len(count))
    # The density of V[i] jointly with all that is known of the values before it, rescaled.
    density = np.zeros_like(grid.nodes)
    last = np.where(count > 0, known[np.arange(len(count)), np.maximum(count, 1) - 1], 0.0)
    for i in range(1, depth + 1):
        if i <= known.shape[1]:
            exact = factor(i, known[:, i - 1 : i])[:, 0]
            log += np.where(i <= count, exact, 0.0)
        first = (count == i - 1)[:, None]
        density = np.where(first, grid.nodes >= last[:, None], grid.running(density))
        weight = factor(i, grid.nodes)
        highest = weight.max(axis=1, keepdims=True)
        highest[np.isneginf(highest)] = 0.0
        density *= np.exp(weight - highest)
        log += np.where(count < i, highest[:, 0], 0.0) + _rescale(density, count < i)
    left = _log(grid.integral(density * (1 - grid.nodes) ** (rows - depth)))
    with np.errstate(divide="ignore"):  # values of 1 leave no room for others above them
        none_left = xlog1py(rows - depth, -np.minimum(last, 1.0))
    return np.asarray(log + np.where(count == depth, none_left, left))


def _rescale(density: NDArray[np.float64], of: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Divide by the greatest density of each run, in place, and return its logarithm.

    The product of many narrow factors would underflow.
    """
    peak = np.where(of, density.max(axis=1), 1.0)
    density /= np.where(peak > 0, peak, 1.0)[:, None]
    return _log(peak)


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(x, 0.0)))
