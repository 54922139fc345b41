"""Named streams of randomness: seeded for experiments, cryptographic for deployments.

A draw depends only on the seed and on the *name* of its stream, so adding a party, a link or a
measurement does not change any other draw. Secrets (masks, noise, coins) and experiments (splits,
latencies) use different names and never share a stream. A forked process gets new keys for all
cryptographic streams, so it never repeats the draws of its parent.
"""

import hashlib
import os
import secrets
import weakref
from typing import Final

import numpy as np
from numpy.random import PCG64DXSM, BitGenerator, Generator, SeedSequence

from veilring.errors import InputError

_CHACHA_ROUNDS: Final = 20  # the full cipher; the faster ChaCha8 and ChaCha12 have a thinner margin
KEY_BYTES: Final = 32
"""The size of a ChaCha key."""
_SPAWNING_WORDS: Final = 4  # NumPy pads the seed to this length before it adds a spawn key
_SEED_BITS: Final = 32


def draw_seed() -> int:
    """Return an unpredictable seed, short enough to be typed to repeat an experiment."""
    return secrets.randbits(_SEED_BITS)


class Streams:
    """Random generators by name.

    Args:
        seed: A whole number of at least 0 gives reproducible generators (PCG64-DXSM, seeded by one
            `numpy.random.SeedSequence` per name). `None` gives cryptographic ones (ChaCha20 keyed
            by the operating system): equal names then give unrelated generators.

    Raises:
        InputError: If the seed is negative.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and seed < 0:
            raise InputError("seed", seed, "a whole number of at least 0, or none")
        self.seed = seed
        words = max(_SPAWNING_WORDS, -(-(seed or 0).bit_length() // 32))
        self._entropy = (seed or 0).to_bytes(4 * words, "little")

    def generator(self, *name: str | int) -> Generator:
        """Return the generator for `name`, at its beginning."""
        if self.seed is None:
            return _Secret(_cipher(secrets.token_bytes(KEY_BYTES)))
        # The same as `SeedSequence(seed, spawn_key=words of the digest)`, in half of the time.
        words = np.frombuffer(self._entropy + _digest(name), dtype="<u4")
        return Generator(PCG64DXSM(SeedSequence(words)))

    def token(self, *name: str | int, size: int = 16) -> bytes:
        """Return `size` (at most 32) bytes for `name`, which are unguessable without a seed."""
        if self.seed is None:
            return secrets.token_bytes(size)
        return _digest((self.seed, *name))[:size]


def keyed(key: bytes) -> Generator:
    """Return the ChaCha20 generator for a secret key of 32 bytes, at its beginning."""
    return Generator(_cipher(key))


class _Secret(Generator):
    """A generator that a forked process does not share with its parent."""

    __slots__ = ("__weakref__",)

    def __init__(self, bits: BitGenerator) -> None:
        super().__init__(bits)
        _secrets.add(self)


_secrets: Final = weakref.WeakSet[_Secret]()


def _take_new_keys() -> None:
    for generator in _secrets:
        generator.bit_generator.state = _cipher(secrets.token_bytes(KEY_BYTES)).state


if hasattr(os, "register_at_fork"):  # not every system can fork
    os.register_at_fork(after_in_child=_take_new_keys)


def _cipher(key: bytes) -> BitGenerator:
    try:
        from randomgen import ChaCha  # noqa: PLC0415  (a browser has none, and needs none with a seed)
    except ModuleNotFoundError as error:
        reason = "`randomgen` is not installed, which makes cryptographic randomness; give a seed"
        raise InputError.because(reason, field="seed") from error
    cipher: BitGenerator = ChaCha(key=int.from_bytes(key, "little"), rounds=_CHACHA_ROUNDS)
    return cipher


def _digest(name: tuple[str | int, ...]) -> bytes:
    return hash_parts(*[str(part).encode() for part in name])


def hash_parts(*parts: bytes) -> bytes:
    """Return the SHA-256 of parts with their lengths: no two lists of parts have the same bytes."""
    return hashlib.sha256(b"".join([len(p).to_bytes(4, "big") + p for p in parts])).digest()
