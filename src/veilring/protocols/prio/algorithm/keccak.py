"""TurboSHAKE128 of many short messages at once.

A call of the library takes as long as some thirty permutations, so a batch of short expansions
costs a quarter here. Long ones are for the library: see `xof`.

Source: Bertoni, Daemen, Hoffert, Peeters, Van Assche, Van Keer and Viguier, "TurboSHAKE" (IACR
2023/342): twelve rounds of Keccak-p[1600] with a rate of 168 bytes.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilring.protocols.prio.algorithm.fields import Octets

RATE: Final = 168
_LANES_IN_RATE: Final = RATE // 8
_ROUNDS: Final = 12
_SIDE: Final = 5

Lanes: TypeAlias = NDArray[np.uint64]
"""Words of 64 bits, shape (lanes, messages)."""


def turbo_shake(domain: int, messages: Octets, length: int) -> Octets:
    """Return the TurboSHAKE128 of each message, shape (messages, length).

    Args:
        domain: The domain byte.
        messages: Shape (messages, bytes).
        length: The number of bytes of a result.
    """
    many, size = messages.shape
    padded = np.zeros((many, RATE * permutations(size, 1)), dtype=np.uint8)
    padded[:, :size] = messages
    padded[:, size] = domain
    padded[:, -1] ^= 0x80
    state = np.zeros((_SIDE * _SIDE, many), dtype=np.uint64)
    for block in np.split(padded.view("<u8"), padded.shape[1] // RATE, axis=1):
        state[:_LANES_IN_RATE] ^= block.T
        _permute(state)
    found = [state[:_LANES_IN_RATE].copy()]
    while len(found) * RATE < length:
        _permute(state)
        found.append(state[:_LANES_IN_RATE].copy())
    rows = np.ascontiguousarray(np.vstack(found).T).astype("<u8", copy=False)
    return rows.view(np.uint8)[:, :length]


def permutations(size: int, length: int) -> int:
    """Return the number of permutations for a message of a size and a result of a length."""
    return size // RATE - (-length // RATE)


def _permute(state: Lanes) -> None:
    """Permute states, lane x + 5 y of the draft at that index, in place."""
    many = state.shape[1]
    plane = state.reshape(_SIDE, _SIDE, many)
    parity, turned, mixed = np.empty((3, _SIDE, many), dtype=np.uint64)
    left, right = np.empty((2, *state.shape), dtype=np.uint64)
    # Each row is followed by its first two lanes, so that slices reach around its end.
    rows = np.empty((_SIDE, _SIDE + 2, many), dtype=np.uint64)
    flat = rows.reshape(-1, many)
    for constant in _CONSTANTS:
        np.bitwise_xor.reduce(plane, axis=0, out=parity)
        np.left_shift(parity, np.uint64(1), out=turned)
        turned |= np.right_shift(parity, np.uint64(63), out=mixed)
        for x in range(_SIDE):
            np.bitwise_xor(parity[x - 1], turned[(x + 1) % _SIDE], out=mixed[x])
        plane ^= mixed
        np.left_shift(state, _TURNS, out=left)
        left |= np.right_shift(state, _TURNS_BACK, out=right)
        np.take(left, _MOVES, axis=0, out=flat, mode="clip")
        after = right.reshape(plane.shape)
        np.invert(rows[:, 1:-1], out=after)
        after &= rows[:, 2:]
        np.bitwise_xor(rows[:, :-2], after, out=plane)
        state[0] ^= constant


def _constants() -> Lanes:
    """Return the constants of the last twelve of 24 rounds, from the shift register of Keccak."""
    found, register = [], 1
    for _ in range(2 * _ROUNDS):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << (1 << j) - 1
            register = register << 1 ^ (0x171 if register & 0x80 else 0)
        found.append(constant)
    return np.array(found[_ROUNDS:], dtype=np.uint64)


def _steps() -> tuple[Lanes, Lanes, NDArray[np.intp]]:
    """Return each lane's turns to the left, and to the right, and from where each row is taken."""
    turns = np.zeros((_SIDE * _SIDE, 1), dtype=np.uint64)
    moves = np.zeros((_SIDE, _SIDE), dtype=np.intp)
    x, y = 1, 0
    for t in range(_SIDE * _SIDE - 1):
        turns[x + _SIDE * y] = (t + 1) * (t + 2) // 2 % 64
        moves[(2 * x + 3 * y) % _SIDE, y] = x + _SIDE * y
        x, y = y, (2 * x + 3 * y) % _SIDE
    return turns, (64 - turns) % 64, np.hstack([moves, moves[:, :2]]).reshape(-1)


_CONSTANTS: Final = _constants()
_TURNS, _TURNS_BACK, _MOVES = _steps()
