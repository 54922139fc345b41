"""Prio3 of draft 08 for one report, in plain integers, about as the draft lists it.

It shares nothing with the package, not even the library for TurboSHAKE128.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

P64 = 2**32 * 4294967295 + 1
P128 = 2**66 * 4611686018427387897 + 1
SIZES = {P64: 8, P128: 16}
ROOTS = {P64: (pow(7, 4294967295, P64), 2**32), P128: (pow(7, 4611686018427387897, P128), 2**66)}
SEED = 16
RATE = 168
WORD = 2**64 - 1
Vector = list[int]
TurboShake = Callable[[bytes, int, int], bytes]


def rotated(lane: int, bits: int) -> int:
    """Rotate a lane to the left."""
    return (lane << bits | lane >> (64 - bits)) & WORD


def round_constants() -> list[int]:
    """Return the constants of the last 12 of 24 rounds of Keccak, from its shift register."""
    found, register = [], 1
    for _ in range(24):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << (2**j - 1)
            register = register << 1 ^ (0x171 if register & 0x80 else 0)
        found.append(constant)
    return found[12:]


ROUNDS = round_constants()


def keccak_p(a: list[list[int]]) -> None:
    """Permute the state, 5 times 5 lanes a[x][y], in place by 12 rounds of Keccak."""
    for constant in ROUNDS:
        parity = [a[x][0] ^ a[x][1] ^ a[x][2] ^ a[x][3] ^ a[x][4] for x in range(5)]
        for x in range(5):
            d = parity[x - 1] ^ rotated(parity[(x + 1) % 5], 1)
            a[x] = [lane ^ d for lane in a[x]]
        x, y, current = 1, 0, a[1][0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, a[x][y] = a[x][y], rotated(current, (t + 1) * (t + 2) // 2 % 64)
        for y in range(5):
            row = [a[x][y] for x in range(5)]
            for x in range(5):
                a[x][y] = row[x] ^ ~row[(x + 1) % 5] & row[(x + 2) % 5]
        a[0][0] ^= constant


def turbo_shake(message: bytes, domain: int, length: int) -> bytes:
    """Return TurboSHAKE128, as the draft on KangarooTwelve defines it."""
    state = [[0] * 5 for _ in range(5)]
    padded = bytearray(message + bytes([domain]))
    padded += bytes(-len(padded) % RATE)
    padded[-1] ^= 0x80
    for start in range(0, len(padded), RATE):
        for i in range(RATE // 8):
            lane = padded[start + 8 * i : start + 8 * i + 8]
            state[i % 5][i // 5] ^= int.from_bytes(lane, "little")
        keccak_p(state)
    out = b""
    while len(out) < length:
        if out:
            keccak_p(state)
        out += b"".join(state[i % 5][i // 5].to_bytes(8, "little") for i in range(RATE // 8))
    return out[:length]


def encode_vec(p: int, vector: Sequence[int]) -> bytes:
    """Encode elements in little-endian order."""
    return b"".join(x.to_bytes(SIZES[p], "little") for x in vector)


def decode_vec(p: int, encoded: bytes) -> Vector:
    """Decode elements, all below the modulus."""
    size = SIZES[p]
    vector = [int.from_bytes(encoded[i : i + size], "little") for i in range(0, len(encoded), size)]
    assert all(x < p for x in vector)
    return vector


def fft(p: int, vector: Vector, root: int) -> Vector:
    """Evaluate a polynomial at all powers of a root of unity."""
    if len(vector) == 1:
        return vector
    square = root * root % p
    even, odd = fft(p, vector[::2], square), fft(p, vector[1::2], square)
    half, w = len(even), 1
    out = [0] * len(vector)
    for i in range(half):
        term = w * odd[i] % p
        out[i], out[i + half] = (even[i] + term) % p, (even[i] - term) % p
        w = w * root % p
    return out


def root_of(p: int, size: int) -> int:
    """Return the draft's root of unity of an order."""
    generator, order = ROOTS[p]
    return pow(generator, order // size, p)


def interpolate(p: int, values: Vector) -> Vector:
    """Return the coefficients of a polynomial from its values at the roots of unity."""
    size = len(values)
    inverse = pow(size, -1, p)
    return [x * inverse % p for x in fft(p, values, pow(root_of(p, size), -1, p))]


def evaluate(p: int, polynomial: Vector, x: int) -> int:
    """Evaluate a polynomial by the method of Horner."""
    y = 0
    for coefficient in reversed(polynomial):
        y = (y * x + coefficient) % p
    return y


def multiply(p: int, a: Vector, b: Vector) -> Vector:
    """Multiply polynomials."""
    out = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] = (out[i + j] + x * y) % p
    return out


def next_power_of_2(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << (n - 1).bit_length()


Gadget = Callable[[Vector], int]


@dataclass(frozen=True)
class Valid:
    """A validity circuit: one of the draft, and its gadget in two forms."""

    kind: str
    p: int
    length: int
    bits: int = 1
    chunk: int = 1

    @cached_property
    def meas_len(self) -> int:
        """The length of an encoded measurement."""
        return self.length * self.bits

    @cached_property
    def arity(self) -> int:
        """The number of wires of the gadget."""
        return {"count": 2, "sum": 1}.get(self.kind, 2 * self.chunk)

    @cached_property
    def calls(self) -> int:
        """The number of calls of the gadget."""
        return -(-self.meas_len // self.chunk)

    @cached_property
    def joint_rand_len(self) -> int:
        """The length of the joint randomness."""
        return {"count": 0, "histogram": 2}.get(self.kind, 1)

    @cached_property
    def points(self) -> int:
        """The number of points of a wire's polynomial."""
        return next_power_of_2(1 + self.calls)

    @cached_property
    def proof_len(self) -> int:
        """The length of a proof."""
        return self.arity + 2 * (self.points - 1) + 1

    def encode(self, measurement: int | Sequence[int]) -> Vector:
        """Encode a measurement."""
        if self.kind == "count":
            assert measurement in (0, 1)
            return [int(measurement)]
        if self.kind == "histogram":
            return [int(i == measurement) for i in range(self.length)]
        numbers = [measurement] if isinstance(measurement, int) else measurement
        assert all(0 <= x < 2**self.bits for x in numbers)
        return [x >> i & 1 for x in numbers for i in range(self.bits)]

    def truncate(self, meas: Vector) -> Vector:
        """Return the part of an encoded measurement that is summed."""
        groups = [meas[i : i + self.bits] for i in range(0, self.meas_len, self.bits)]
        return [sum(bit << i for i, bit in enumerate(group)) % self.p for group in groups]

    def gadget(self, inp: Vector) -> int:
        """Evaluate the gadget."""
        if self.kind == "sum":
            return (inp[0] * inp[0] - inp[0]) % self.p
        out = 0
        for left, right in zip(inp[::2], inp[1::2], strict=True):
            out = (out + left * right) % self.p
        return out

    def gadget_poly(self, inp: list[Vector]) -> Vector:
        """Evaluate the gadget on polynomials."""
        p = self.p
        if self.kind == "sum":
            out = multiply(p, inp[0], inp[0])
            for i, x in enumerate(inp[0]):
                out[i] = (out[i] - x) % p
            return out
        out = [0] * (2 * len(inp[0]) - 1)
        for left, right in zip(inp[::2], inp[1::2], strict=True):
            out = [(x + y) % p for x, y in zip(out, multiply(p, left, right), strict=True)]
        return out

    def eval(self, meas: Vector, joint_rand: Vector, shares: int, call: Gadget) -> int:
        """Evaluate the circuit."""
        p, out = self.p, 0
        if self.kind == "count":
            return (call([meas[0], meas[0]]) - meas[0]) % p
        r = r_power = joint_rand[0]
        if self.kind == "sum":
            for b in meas:
                out = (out + r_power * call([b])) % p
                r_power = r_power * r % p
            return out
        shares_inv = pow(shares, -1, p)
        for i in range(self.calls):
            inputs = []
            for j in range(self.chunk):
                index = i * self.chunk + j
                x = meas[index] if index < len(meas) else 0
                inputs += [r_power * x % p, (x - shares_inv) % p]
                r_power = r_power * r % p
            out = (out + call(inputs)) % p
        if self.kind == "sum_vec":
            return out
        sum_check = (sum(meas) - shares_inv) % p
        return (joint_rand[1] * out + joint_rand[1] ** 2 * sum_check) % p

    def wire_polys(self, seeds: Vector, calls: list[Vector]) -> list[Vector]:
        """Return the polynomials of the wires."""
        padding = [0] * (self.points - 1 - len(calls))
        return [
            interpolate(self.p, [seed, *(inp[j] for inp in calls), *padding])
            for j, seed in enumerate(seeds)
        ]

    def prove(self, meas: Vector, prove_rand: Vector, joint_rand: Vector) -> Vector:
        """Prove that a measurement is valid."""
        calls: list[Vector] = []

        def call(inp: Vector) -> int:
            calls.append(inp)
            return self.gadget(inp)

        self.eval(meas, joint_rand, 1, call)
        return prove_rand + self.gadget_poly(self.wire_polys(prove_rand, calls))

    def query(self, meas: Vector, proof: Vector, t: int, joint_rand: Vector, shares: int) -> Vector:
        """Query shares of a measurement and a proof."""
        p, calls = self.p, list[Vector]()
        seeds, poly = proof[: self.arity], proof[self.arity :]
        root = root_of(p, self.points)

        def call(inp: Vector) -> int:
            calls.append(inp)
            return evaluate(p, poly, pow(root, len(calls), p))

        v = self.eval(meas, joint_rand, shares, call)
        assert pow(t, self.points, p) != 1
        wires = [evaluate(p, wire, t) for wire in self.wire_polys(seeds, calls)]
        return [v, *wires, evaluate(p, poly, t)]

    def decide(self, verifier: Vector) -> bool:
        """Decide whether a measurement is valid."""
        v, *x, y = verifier
        return v == 0 and self.gadget(x) == y


@dataclass(frozen=True)
class Reference:
    """Prio3 for two aggregators."""

    valid: Valid
    algorithm_id: int
    proofs: int = 1
    shake: TurboShake = turbo_shake

    def xof(self, usage: int, seed: bytes, binder: bytes, length: int) -> bytes:
        """Expand a seed into bytes for one usage."""
        dst = bytes([8, 0]) + self.algorithm_id.to_bytes(4, "big") + usage.to_bytes(2, "big")
        return self.shake(bytes([len(dst)]) + dst + seed + binder, 1, length)

    def expand(self, usage: int, seed: bytes, binder: bytes, length: int) -> Vector:
        """Expand a seed into elements: the next bytes replace a number of at least the modulus."""
        size = SIZES[self.valid.p]
        stream = self.xof(usage, seed, binder, size * (length + 1))
        numbers = [
            int.from_bytes(stream[i : i + size], "little") for i in range(0, len(stream), size)
        ]
        vector = [x for x in numbers if x < self.valid.p]
        assert len(vector) >= length  # two of them are never that large
        return vector[:length]

    def helper_meas_share(self, seed: bytes) -> Vector:
        """Return the helper's share of the measurement."""
        return self.expand(1, seed, bytes([1]), self.valid.meas_len)

    def helper_proofs_share(self, seed: bytes) -> Vector:
        """Return the helper's share of the proofs."""
        length = self.valid.proof_len * self.proofs
        return self.expand(2, seed, bytes([self.proofs, 1]), length)

    def joint_rand_part(self, agg_id: int, blind: bytes, meas: Vector, nonce: bytes) -> bytes:
        """Return an aggregator's part of the seed of the joint randomness."""
        binder = bytes([agg_id]) + nonce + encode_vec(self.valid.p, meas)
        return self.xof(7, blind, binder, SEED)

    def joint_rand_seed(self, parts: Sequence[bytes]) -> bytes:
        """Return the seed of the joint randomness."""
        return self.xof(6, bytes(SEED), b"".join(parts), SEED)

    def joint_rands(self, seed: bytes) -> list[Vector]:
        """Return the joint randomness of each proof."""
        return self.each_proof(
            self.expand(3, seed, bytes([self.proofs]), self.valid.joint_rand_len * self.proofs)
        )

    def each_proof(self, vector: Vector) -> list[Vector]:
        """Split a vector into the parts of each proof."""
        size = len(vector) // self.proofs
        return [vector[i * size : (i + 1) * size] for i in range(self.proofs)]

    def shard(
        self, measurement: int | Sequence[int], nonce: bytes, rand: bytes
    ) -> tuple[bytes, tuple[bytes, bytes]]:
        """Return the public share and the input shares, encoded."""
        return self.shard_encoded(self.valid.encode(measurement), nonce, rand)

    def shard_encoded(
        self, meas: Vector, nonce: bytes, rand: bytes
    ) -> tuple[bytes, tuple[bytes, bytes]]:
        """Return the shares of any encoded measurement, also of an invalid one."""
        valid, p = self.valid, self.valid.p
        seeds = [rand[i : i + SEED] for i in range(0, len(rand), SEED)]
        joint, *k_helper = valid.joint_rand_len > 0, *seeds[: 3 if valid.joint_rand_len else 2]
        helper = self.helper_meas_share(k_helper[0])
        leader = [(x - y) % p for x, y in zip(meas, helper, strict=True)]
        parts = []
        if joint:
            parts = [
                self.joint_rand_part(0, seeds[3], leader, nonce),
                self.joint_rand_part(1, k_helper[2], helper, nonce),
            ]
        prove_rands = self.expand(4, seeds[-1], bytes([self.proofs]), valid.arity * self.proofs)
        joint_rands = self.joint_rands(self.joint_rand_seed(parts))
        proofs = [
            x
            for of_proof in zip(self.each_proof(prove_rands), joint_rands, strict=True)
            for x in valid.prove(meas, *of_proof)
        ]
        helper_proofs = self.helper_proofs_share(k_helper[1])
        shares = [(x - y) % p for x, y in zip(proofs, helper_proofs, strict=True)]
        blind = seeds[3] if joint else b""
        return b"".join(parts), (encode_vec(p, leader + shares) + blind, b"".join(k_helper))

    def prep_init(
        self, verify_key: bytes, agg_id: int, nonce: bytes, public: bytes, share: bytes
    ) -> tuple[Vector, bytes, bytes]:
        """Return the output share, the seed of the joint randomness, and the preparation share."""
        valid, p = self.valid, self.valid.p
        joint = valid.joint_rand_len > 0
        blind = share[len(share) - SEED * joint :]
        if agg_id == 0:
            vectors = decode_vec(p, share[: len(share) - SEED * joint])
            meas, proofs = vectors[: valid.meas_len], vectors[valid.meas_len :]
        else:
            meas = self.helper_meas_share(share[:SEED])
            proofs = self.helper_proofs_share(share[SEED : 2 * SEED])
        part = seed = b""
        joint_rands: list[Vector] = [[]] * self.proofs
        if joint:
            part = self.joint_rand_part(agg_id, blind, meas, nonce)
            parts = [public[:SEED], public[SEED:]]
            parts[agg_id] = part
            seed = self.joint_rand_seed(parts)
            joint_rands = self.joint_rands(seed)
        ts = self.expand(5, verify_key, bytes([self.proofs]) + nonce, self.proofs)
        verifiers: Vector = []
        for proof, t, joint_rand in zip(self.each_proof(proofs), ts, joint_rands, strict=True):
            verifiers += valid.query(meas, proof, t, joint_rand, 2)
        return valid.truncate(meas), seed, encode_vec(p, verifiers) + part

    def prep_shares_to_prep(self, leader: bytes, helper: bytes) -> bytes | None:
        """Return the preparation message; none if the report is invalid."""
        p, tail = self.valid.p, SEED * (self.valid.joint_rand_len > 0)
        end = len(leader) - tail
        pairs = zip(decode_vec(p, leader[:end]), decode_vec(p, helper[:end]), strict=True)
        verifiers = self.each_proof([(x + y) % p for x, y in pairs])
        if not all(self.valid.decide(verifier) for verifier in verifiers):
            return None
        return self.joint_rand_seed([leader[end:], helper[end:]]) if tail else b""
