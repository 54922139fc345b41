"""Clients that cheat: no invalid measurement is counted, however well its proof is made."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.protocols.prio.reference import P64, P128, Reference, Valid, Vector
from typing_extensions import override

from veilring.protocols.prio.algorithm.prio3 import Prio3

KEY = bytes(range(16))
REPORTS = 8


class Forged(Valid):
    """A prover that changes its polynomial until the circuit's output is 0."""

    @override
    def prove(self, meas: Vector, prove_rand: Vector, joint_rand: Vector) -> Vector:
        proof = super().prove(meas, prove_rand, joint_rand)
        outputs = []
        for change in (0, 1):
            changed = [*proof[: self.arity], proof[self.arity] + change, *proof[self.arity + 1 :]]
            outputs.append(self.query(meas, changed, 5, joint_rand, 1)[0])
        slope = outputs[1] - outputs[0]
        proof[self.arity] -= outputs[0] * pow(slope, -1, self.p)
        proof[self.arity] %= self.p
        assert self.query(meas, proof, 5, joint_rand, 1)[0] == 0
        return proof


def sum_vec(length: int) -> tuple[Prio3, Reference]:
    """Return a sum of numbers of two bits, and its listing."""
    valid = Valid("sum_vec", P128, length, 2, 3)
    return Prio3.sum_vec(length, 2, 3), Reference(valid, 2)


SCHEMES: dict[str, Callable[[], tuple[Prio3, Reference]]] = {
    "count": lambda: (Prio3.count(), Reference(Valid("count", P64, 1), 0)),
    "sum": lambda: (Prio3.sum_(4), Reference(Valid("sum", P128, 1, bits=4), 1)),
    "sum_vec": lambda: sum_vec(3),
    "sum_vec_multiproof": lambda: (
        Prio3.sum_vec_multiproof(3, 2, 3, 3),
        Reference(Valid("sum_vec", P64, 3, 2, 3), 0xFFFFFFFF, 3),
    ),
    "histogram": lambda: (
        Prio3.histogram(5, 2),
        Reference(Valid("histogram", P128, 5, chunk=2), 3),
    ),
}
INVALID: list[tuple[str, Vector]] = [
    ("count", [2]),
    ("count", [-1]),
    ("sum", [0, 0, 0, 2]),
    ("sum", [0, -1, 0, 0]),
    ("sum_vec", [0, 1, 7, 0, 1, 0]),
    ("sum_vec", [0, 1, 1, 0, 1, -1]),
    ("sum_vec_multiproof", [0, 1, 7, 0, 1, 0]),
    ("histogram", [1, 0, 0, 1, 0]),
    ("histogram", [0, 0, 0, 0, 0]),
    ("histogram", [2, -1, 0, 0, 0]),
    ("histogram", [0, 0, 3, 0, 0]),
]


def rows(encoded: Sequence[bytes]) -> Any:
    """Return bytes as rows."""
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).reshape(len(encoded), -1)


def accepted(prio: Prio3, reports: list[tuple[bytes, bytes, tuple[bytes, bytes]]]) -> list[bool]:
    """Return which reports both aggregators accept: nonce, public share and input shares."""
    nonces, public, shares = zip(*reports, strict=True)
    preparations = [
        prio.prepare(KEY, i, rows(nonces), rows(public), rows([share[i] for share in shares]))
        for i in range(2)
    ]
    messages, valid = prio.combine(*(each.prep_shares for each in preparations))
    for each in preparations:
        valid = valid & each.valid & prio.finish(each, messages)[1]
    return list(valid)


@pytest.mark.parametrize("prover", [Valid, Forged])
@pytest.mark.parametrize(("name", "meas"), INVALID)
def test_an_invalid_measurement_is_refused(name: str, meas: Vector, prover: type[Valid]) -> None:
    """A measurement out of range is refused, with an honest proof and with the best forged one.

    The forged proof makes the circuit's output 0. Only the test of the gadget's polynomial finds
    this, and misses it with a probability below 2^-58 a report.
    """
    prio, listing = SCHEMES[name]()
    valid = listing.valid
    cheat = replace(
        listing, valid=prover(valid.kind, valid.p, valid.length, valid.bits, valid.chunk)
    )
    rng = np.random.default_rng(11)
    p = valid.p
    reports = []
    for _ in range(REPORTS):
        nonce, rand = rng.bytes(16), rng.bytes(prio.rand_size)
        reports.append((nonce, *cheat.shard_encoded([x % p for x in meas], nonce, rand)))
    assert accepted(prio, reports) == [False] * REPORTS


class Chosen(Reference):
    """A client that proves for joint randomness of its own choice, and says so in public."""

    parts: ClassVar[tuple[bytes, bytes]] = (bytes(16), bytes(range(16)))

    @override
    def joint_rand_part(self, agg_id: int, blind: bytes, meas: Vector, nonce: bytes) -> bytes:
        return self.parts[agg_id]


def test_joint_randomness_chosen_before_the_measurement_is_refused() -> None:
    """A measurement that is invalid, but passes for one r, needs a hash that gives this r.

    The client chooses both parts first, and then two invalid elements whose errors cancel out for
    the r that follows. With this r, its proof is perfect.
    """
    prio, listing = sum_vec(3)
    valid = listing.valid
    cheat = Chosen(valid, listing.algorithm_id)
    ((r,),) = cheat.joint_rands(cheat.joint_rand_seed(cheat.parts))
    # (x² - x) r + (y² - y) r² = 0 has the solution x = 2 y, y = (r + 2) / (r + 4).
    y = (r + 2) * pow(r + 4, -1, P128) % P128
    meas = [2 * y % P128, y, 0, 0, 0, 0]
    assert y not in {0, 1}
    rng = np.random.default_rng(12)
    nonce, rand = rng.bytes(16), rng.bytes(prio.rand_size)
    proof = valid.prove(meas, list(range(valid.arity)), [r])
    assert valid.decide(valid.query(meas, proof, 5, [r], 1))
    public, shares = cheat.shard_encoded(meas, nonce, rand)
    assert public == b"".join(cheat.parts)
    assert accepted(prio, [(nonce, public, shares)]) == [False]


def test_shares_that_are_swapped_between_reports_are_refused() -> None:
    """The leader's share of one report does not verify with the helper's share of another."""
    prio, listing = SCHEMES["histogram"]()
    rng = np.random.default_rng(13)
    nonce = rng.bytes(16)
    (public, first), (other, second) = (
        listing.shard(bucket, nonce, rng.bytes(prio.rand_size)) for bucket in (1, 2)
    )
    mixed = [(nonce, public, (first[0], second[1])), (nonce, other, (first[0], second[1]))]
    mixed.append((nonce, public[:16] + other[16:], (first[0], second[1])))
    assert accepted(prio, [(nonce, public, first), *mixed]) == [True, False, False, False]
