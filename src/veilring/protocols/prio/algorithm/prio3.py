"""Prio3, a verifiable distributed aggregation function, over many reports (section "Prio3").

A client shards its measurement into one share for each aggregator. The aggregators prepare their
shares of a batch: each computes a preparation share of every report; these combine to a message, or
show that the report is invalid; and with the message each aggregator finishes its output share. The
sum of an aggregator's output shares is its aggregate share, and the sum of the aggregate shares of
all aggregators is the total of the measurements.

For example::

    prio = Prio3.histogram(length=100, chunk_length=10)
    public, (leader, helper) = prio.shard(buckets, nonces, rand)

    first = prio.prepare(key, 0, nonces, public, leader)
    second = prio.prepare(key, 1, nonces, public, helper)
    messages, accepted = prio.combine(first.prep_shares, second.prep_shares)
    shares, finished = prio.finish(first, messages)
    aggregate = prio.aggregate(shares, first.valid & second.valid & accepted & finished)

All rows are `uint8`, one row a report, with exactly the draft's encodings. A report that does not
decode or does not verify is marked as invalid and never raises an error. Its shares and messages
are then zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from veilring.arrays import Bools
from veilring.privacy.checks import require, require_that, require_whole
from veilring.protocols.prio.algorithm import circuits
from veilring.protocols.prio.algorithm.circuits import Circuit
from veilring.protocols.prio.algorithm.drafts import DRAFT_08, Draft
from veilring.protocols.prio.algorithm.fields import FIELD64, FIELD128, Elements, Field, Octets
from veilring.protocols.prio.algorithm.proofs import (
    QUERY_RAND_LENGTH,
    decide,
    proof_length,
    prove,
    query,
    verifier_length,
)
from veilring.protocols.prio.algorithm.xof import Xof

LEADER: Final = 0
# The number of proofs, and that of an aggregator, is one byte of a binder.
PROOFS_MAX: Final = 255
SHARES_MIN: Final = 2
# As for the proofs.
SHARES_MAX: Final = 255
# The elements of encoded measurements that are processed at once, which bounds the memory: with
# fewer, calls of NumPy cost more than their work.
BLOCK_ELEMENTS: Final = 1 << 18
# A proof multiplies several numbers for each element: those of more reports leave the caches.
_PROVED_ELEMENTS: Final = 1 << 15
# More reports at once are no faster, and take more memory.
BLOCK_REPORTS_MAX: Final = 1 << 10


@dataclass(frozen=True)
class Preparation:
    """An aggregator's state of a batch between `prepare` and `finish`. Secret but for the shares.

    Attributes:
        out_shares: Shares of the elements to sum, shape (words, output_length, reports).
        joint_seeds: The seeds of the joint randomness, shape (reports, bytes); no bytes without.
        prep_shares: The rows to exchange with the other aggregators.
        valid: Whether a report decoded, shape (reports,).
    """

    out_shares: Elements
    joint_seeds: Octets
    prep_shares: Octets
    valid: Bools


@dataclass(frozen=True)
class Prio3:
    """One instance of the scheme, made by one of the constructors.

    Attributes:
        circuit: The valid measurements.
        algorithm_id: The code point of the scheme.
        proofs: The number of proofs of a report, from 1 to 255.
        shares: The number of aggregators, from 2 to 255.
        draft: The constants of the draft.
    """

    circuit: Circuit
    algorithm_id: int
    proofs: int = 1
    shares: int = 2
    draft: Draft = DRAFT_08

    def __post_init__(self) -> None:
        require_whole("proofs", self.proofs, PROOFS_MAX)
        allowed = f"a whole number from {SHARES_MIN} to {SHARES_MAX}"
        require(SHARES_MIN <= self.shares <= SHARES_MAX, "shares", self.shares, allowed)

    @classmethod
    def count(cls, *, shares: int = 2, draft: Draft = DRAFT_08) -> Self:
        """Add measurements that are 0 or 1, shape (reports,)."""
        return cls(circuits.count(), draft.count, shares=shares, draft=draft)

    @classmethod
    def sum_(cls, bits: int, *, shares: int = 2, draft: Draft = DRAFT_08) -> Self:
        """Add numbers below 2^bits, shape (reports,)."""
        return cls(circuits.sum_(bits), draft.sum, shares=shares, draft=draft)

    @classmethod
    def sum_vec(
        cls, length: int, bits: int, chunk_length: int, *, shares: int = 2, draft: Draft = DRAFT_08
    ) -> Self:
        """Add vectors of numbers below 2^bits, shape (reports, length).

        Args:
            length: The length of a vector.
            bits: The bits of a number, from 1 to 63.
            chunk_length: The bits that a call of the gadget checks. A proof is short if this is
                near the root of all bits.
        """
        circuit = circuits.sum_vec(FIELD128, length, bits, chunk_length)
        return cls(circuit, draft.sum_vec, shares=shares, draft=draft)

    @classmethod
    def sum_vec_multiproof(
        cls,
        length: int,
        bits: int,
        chunk_length: int,
        proofs: int,
        *,
        shares: int = 2,
        draft: Draft = DRAFT_08,
    ) -> Self:
        """Do as `sum_vec`, in the smaller field, with several proofs."""
        circuit = circuits.sum_vec(FIELD64, length, bits, chunk_length)
        return cls(circuit, draft.private, proofs, shares, draft)

    @classmethod
    def histogram(
        cls, length: int, chunk_length: int, *, shares: int = 2, draft: Draft = DRAFT_08
    ) -> Self:
        """Count how many measurements are in each bucket; a measurement is an index below length.

        Args:
            length: The number of buckets.
            chunk_length: The buckets that a call of the gadget checks, near the root of length.
        """
        circuit = circuits.histogram(length, chunk_length)
        return cls(circuit, draft.histogram, shares=shares, draft=draft)

    @classmethod
    def multi_hot_histogram(
        cls,
        length: int,
        ones_max: int,
        chunk_length: int,
        *,
        shares: int = 2,
        draft: Draft = DRAFT_08,
    ) -> Self:
        """Add vectors of zeros and at most `ones_max` ones, shape (reports, length)."""
        circuit = circuits.multi_hot_histogram(length, ones_max, chunk_length)
        return cls(circuit, draft.private, shares=shares, draft=draft)

    @property
    def field(self) -> Field:
        """The field of all shares."""
        return self.circuit.field

    @property
    def output_length(self) -> int:
        """The number of totals."""
        return self.circuit.output_length

    @property
    def _joint_bytes(self) -> int:
        """The size of a seed of the joint randomness, or 0 if the circuit has none."""
        return self.draft.seed_bytes if self.circuit.joint_length else 0

    @property
    def rand_size(self) -> int:
        """The bytes of randomness that a client needs for a report."""
        helpers = self.shares - 1
        return self.draft.seed_bytes * (1 + 2 * helpers) + self._joint_bytes * self.shares

    @property
    def public_share_size(self) -> int:
        """The bytes that a report has for all aggregators."""
        return self._joint_bytes * self.shares

    @property
    def input_share_sizes(self) -> tuple[int, ...]:
        """The bytes that a report has for each aggregator, the leader's first."""
        vectors = self.circuit.length + self.proofs * proof_length(self.circuit)
        leader = vectors * self.field.element_bytes + self._joint_bytes
        helper = 2 * self.draft.seed_bytes + self._joint_bytes
        return leader, *(helper,) * (self.shares - 1)

    @property
    def prep_share_size(self) -> int:
        """The bytes that each aggregator sends of a report to be verified."""
        answers = self.proofs * verifier_length(self.circuit)
        return answers * self.field.element_bytes + self._joint_bytes

    @property
    def prep_message_size(self) -> int:
        """The bytes that tell the aggregators of a report that it is valid."""
        return self._joint_bytes

    @property
    def aggregate_share_size(self) -> int:
        """The bytes of an encoded aggregate share."""
        return self.output_length * self.field.element_bytes

    def shard(
        self, measurements: NDArray[Any], nonces: Octets, rand: Octets
    ) -> tuple[Octets, tuple[Octets, ...]]:
        """Split measurements into shares, with proofs that they are valid.

        Args:
            measurements: Integers, in the shape that the constructor says.
            nonces: Public names of the reports, 16 uniform bytes each.
            rand: Uniform secret bytes, shape (reports, rand_size).

        Returns:
            The public shares, and the input shares of each aggregator.

        Raises:
            InputError: A measurement is out of range, or an array has a wrong shape.
        """
        numbers, reports = np.asarray(measurements), len(nonces)
        _require_rows("nonces", nonces, reports, self.draft.nonce_bytes)
        _require_rows("rand", rand, reports, self.rand_size)
        require_that(
            numbers.shape[:1] == (reports,),
            "measurements",
            f"there are {reports:,} nonces; give as many measurements, not an array of the shape "
            f"{numbers.shape}",
        )
        parts = [
            self._shard(numbers[block], nonces[block], rand[block])
            for block in self._blocks(reports, _PROVED_ELEMENTS)
        ]
        public, *shares = (np.concatenate(rows) for rows in zip(*parts, strict=True))
        return public, tuple(shares)

    def _shard(self, measurements: NDArray[Any], nonces: Octets, rand: Octets) -> list[Octets]:
        """Return the public shares and the input shares of a block."""
        x = self.circuit.encode(measurements)
        seeds = np.hsplit(rand, self.rand_size // self.draft.seed_bytes)
        each = 3 if self._joint_bytes else 2
        helpers = [seeds[i : i + each] for i in range(0, each * (self.shares - 1), each)]
        leader_blind, prove_seed = seeds[-2:]
        share, parts = x, []
        for aggregator, (seed, _, *blinds) in enumerate(helpers, start=1):
            helper_x, encoded = self._helper_measurements(aggregator, seed)
            share = self.field.sub(share, helper_x)
            parts += [self._joint_part(aggregator, blind, nonces, encoded) for blind in blinds]
        encoded, blinds, public = self.field.encode(share), [], rand[:, :0]
        if self._joint_bytes:
            blinds = [leader_blind]
            public = np.hstack([self._joint_part(LEADER, leader_blind, nonces, encoded), *parts])
        proof = self._prove(x, prove_seed, self._joint_seeds(public))
        for aggregator, (_, seed, *_) in enumerate(helpers, start=1):
            proof = self.field.sub(proof, self._helper_proofs(aggregator, seed))
        leader = np.hstack([encoded, self.field.encode(proof), *blinds])
        return [public, leader, *(np.hstack(helper) for helper in helpers)]

    def _prove(self, x: Elements, prove_seeds: Octets, joint_seeds: Octets) -> Elements:
        """Return all proofs of a block, one after the other."""
        usage, length = self.draft.prove_randomness, self.circuit.arity
        wire_seeds = self._each_proof(self._for_proofs(usage, prove_seeds, length=length))
        randomness = self._joint_randomness(joint_seeds)
        found = [
            prove(self.circuit, x, seeds, r)
            for seeds, r in zip(wire_seeds, randomness, strict=True)
        ]
        return np.concatenate(found, axis=1)

    def prepare(
        self,
        verify_key: bytes,
        aggregator: int,
        nonces: Octets,
        public_shares: Octets,
        input_shares: Octets,
    ) -> Preparation:
        """Compute an aggregator's state of reports, and its shares of their verification.

        Args:
            verify_key: 16 secret bytes that all aggregators share and no client knows.
            aggregator: The number of the aggregator; the leader has 0.
            nonces: The names of the reports. Reports of one key must have different nonces.
            public_shares: Shape (reports, public_share_size).
            input_shares: Shape (reports, input_share_sizes[aggregator]).

        Raises:
            InputError: The key or an array has a wrong size.
        """
        require(
            0 <= aggregator < self.shares,
            "aggregator",
            aggregator,
            f"a whole number from 0 to {self.shares - 1}",
        )
        require_that(
            len(verify_key) == self.draft.seed_bytes,
            "verify_key",
            f"verify_key has {len(verify_key)} bytes; it must have {self.draft.seed_bytes}",
        )
        reports = len(nonces)
        _require_rows("nonces", nonces, reports, self.draft.nonce_bytes)
        _require_rows("public_shares", public_shares, reports, self.public_share_size)
        _require_rows("input_shares", input_shares, reports, self.input_share_sizes[aggregator])
        parts = [
            self._prepare(
                verify_key, aggregator, nonces[block], public_shares[block], input_shares[block]
            )
            for block in self._blocks(reports)
        ]
        return Preparation(
            np.concatenate([part.out_shares for part in parts], axis=-1),
            np.concatenate([part.joint_seeds for part in parts]),
            np.concatenate([part.prep_shares for part in parts]),
            np.concatenate([part.valid for part in parts]),
        )

    def _prepare(
        self, key: bytes, aggregator: int, nonces: Octets, public: Octets, share: Octets
    ) -> Preparation:
        """Return the preparation of a block."""
        x, proofs, encoded, valid = self._open_share(aggregator, share)
        part, parts = public[:, :0], public
        if size := self._joint_bytes:
            part = self._joint_part(aggregator, share[:, -size:], nonces, encoded)
            parts = public.copy()  # the client may have sent another one
            parts[:, aggregator * size : (aggregator + 1) * size] = part
        joint_seeds = self._joint_seeds(parts)
        usage = self.draft.query_randomness
        points = self._each_proof(self._for_proofs(usage, key, nonces, length=QUERY_RAND_LENGTH))
        randomness = self._joint_randomness(joint_seeds)
        answers = []
        for proof, t, r in zip(self._each_proof(proofs), points, randomness, strict=True):
            answer, hiding = query(self.circuit, x, proof, t, r, shares=self.shares)
            answers.append(answer)
            valid &= hiding
        prep_shares = np.hstack([self.field.encode(np.concatenate(answers, axis=1)), part])
        prep_shares[~valid] = 0
        out_shares = self.circuit.truncate(x) * valid.astype(np.uint64)
        return Preparation(out_shares, joint_seeds, prep_shares, valid)

    def _open_share(
        self, aggregator: int, share: Octets
    ) -> tuple[Elements, Elements, Octets, Bools]:
        """Return shares of measurements and proofs, the former's bytes, and which are canonical."""
        if aggregator == LEADER:
            elements, valid = self.field.decode(share[:, : share.shape[1] - self._joint_bytes])
            x, proofs = np.split(elements, [self.circuit.length], axis=1)
            return x, proofs, share[:, : self.circuit.length * self.field.element_bytes], valid
        size = self.draft.seed_bytes
        x, encoded = self._helper_measurements(aggregator, share[:, :size])
        proofs = self._helper_proofs(aggregator, share[:, size : 2 * size])
        return x, proofs, encoded, np.ones(len(share), dtype=np.bool_)

    def combine(self, *prep_shares: Octets) -> tuple[Octets, Bools]:
        """Return the preparation messages, and which reports are valid.

        Args:
            prep_shares: The rows of each aggregator in turn, shape (reports, prep_share_size).

        Raises:
            InputError: An array has a wrong shape.
        """
        require(
            len(prep_shares) == self.shares,
            "prep_shares",
            len(prep_shares),
            f"{self.shares} of them",
        )
        reports = len(prep_shares[0])
        for rows in prep_shares:
            _require_rows("prep_shares", rows, reports, self.prep_share_size)
        parts = [
            self._combine([rows[block] for rows in prep_shares]) for block in self._blocks(reports)
        ]
        messages, valid = zip(*parts, strict=True)
        return np.concatenate(messages), np.concatenate(valid)

    def _combine(self, prep_shares: Sequence[Octets]) -> tuple[Octets, Bools]:
        """Return the messages of a block, and which reports are valid."""
        end = self.prep_share_size - self._joint_bytes
        answers = self.field.zeros(self.proofs * verifier_length(self.circuit), len(prep_shares[0]))
        valid = np.ones(answers.shape[-1], dtype=np.bool_)
        for rows in prep_shares:
            share, canonical = self.field.decode(rows[:, :end])
            answers = self.field.add(answers, share)
            valid &= canonical
        for answer in self._each_proof(answers):
            valid &= decide(self.circuit, answer)
        messages = self._joint_seeds(np.hstack([rows[:, end:] for rows in prep_shares]))
        messages[~valid] = 0
        return messages, valid

    def finish(self, preparation: Preparation, messages: Octets) -> tuple[Elements, Bools]:
        """Return output shares, shape (words, output_length, reports), and which reports are valid.

        Sum only the shares of reports that `combine` found valid, too, and every aggregator here.

        Args:
            messages: The rows that `combine` returned, shape (reports, prep_message_size).

        Raises:
            InputError: An array has a wrong shape.
        """
        _require_rows("messages", messages, len(preparation.valid), self.prep_message_size)
        same = (messages == preparation.joint_seeds).all(axis=1)
        valid = preparation.valid & same
        return preparation.out_shares * valid.astype(np.uint64), valid

    def aggregate(self, out_shares: Elements, counted: Bools) -> Elements:
        """Return the sum of the output shares of the counted reports, shape (words, output_length).

        Args:
            out_shares: Shape (words, output_length, reports).
            counted: Shape (reports,).
        """
        return self.field.sum(out_shares[..., counted], axis=2)

    def encode_aggregate(self, share: Elements) -> bytes:
        """Return the bytes of an aggregate share."""
        return self.field.encode(share[..., None]).tobytes()

    def decode_aggregate(self, encoded: bytes) -> Elements:
        """Return an aggregate share from its bytes.

        Raises:
            InputError: The bytes have a wrong size, or encode a number above the modulus.
        """
        row = np.frombuffer(encoded, dtype=np.uint8)[None]
        _require_rows("encoded", row, 1, self.aggregate_share_size)
        share, canonical = self.field.decode(row)
        require_that(
            bool(canonical[0]),
            "encoded",
            "an aggregate share has a number that is not below the modulus; ask its aggregator for "
            "a correct share",
        )
        return share[..., 0]

    def unshard(self, shares: Sequence[Elements], reports: int) -> list[int]:
        """Return the totals, from the aggregate shares of all aggregators.

        A total above half of the modulus counts as negative: only noise in a share can cause that.

        Args:
            shares: One aggregate share of each aggregator.
            reports: The number of reports that each of them counted.

        Raises:
            InputError: The sum of this number of reports could exceed half of the modulus, or a
                share is missing.
        """
        modulus = self.field.modulus
        require(
            0 <= reports <= modulus // (2 * self.circuit.largest),
            "reports",
            reports,
            f"a whole number from 0 to {modulus // (2 * self.circuit.largest):,}",
        )
        require(len(shares) == self.shares, "shares", len(shares), f"{self.shares} of them")
        total = self.field.sum(np.stack(shares, axis=2), axis=2)
        return [number - modulus * (2 * number > modulus) for number in self.field.integers(total)]

    def _blocks(self, reports: int, elements: int = BLOCK_ELEMENTS) -> Iterator[slice]:
        """Yield slices of reports of bounded size, and an empty slice of no reports."""
        step = min(max(elements // self.circuit.length, 1), BLOCK_REPORTS_MAX)
        for start in range(0, max(reports, 1), step):
            yield slice(start, start + step)

    @property
    def _xof(self) -> Xof:
        return Xof(self.draft, self.algorithm_id)

    # What follows are the "Auxiliary Functions" of the draft.

    def _helper_measurements(self, aggregator: int, seeds: Octets) -> tuple[Elements, Octets]:
        """Return a helper's shares of encoded measurements, and their bytes."""
        return self._xof.expand(
            self.draft.measurement_share,
            seeds,
            bytes([aggregator]),
            field=self.field,
            length=self.circuit.length,
        )

    def _helper_proofs(self, aggregator: int, seeds: Octets) -> Elements:
        """Return a helper's shares of all proofs."""
        usage, length = self.draft.proof_share, proof_length(self.circuit)
        return self._for_proofs(usage, seeds, bytes([aggregator]), length=length)

    def _joint_part(
        self, aggregator: int, blinds: Octets, nonces: Octets, encoded: Octets
    ) -> Octets:
        """Return an aggregator's parts of the seeds of the joint randomness."""
        binder = bytes([aggregator]), nonces, encoded
        return self._xof.derive(self.draft.joint_part, blinds, *binder)

    def _joint_seeds(self, parts: Octets) -> Octets:
        """Return the seeds of the joint randomness, of no bytes for a circuit without it."""
        if not self._joint_bytes:
            return parts
        return self._xof.derive(self.draft.joint_seed, bytes(self.draft.seed_bytes), parts)

    def _joint_randomness(self, seeds: Octets) -> list[Elements]:
        """Return the joint randomness of each proof."""
        if not self._joint_bytes:
            return [self.field.zeros(0, len(seeds))] * self.proofs
        usage, length = self.draft.joint_randomness, self.circuit.joint_length
        return self._each_proof(self._for_proofs(usage, seeds, length=length))

    def _for_proofs(
        self, usage: int, seeds: Octets | bytes, *binder: Octets | bytes, length: int
    ) -> Elements:
        """Return vectors of a length for each of the proofs, one after the other."""
        return self._xof.expand(
            usage,
            seeds,
            bytes([self.proofs]),
            *binder,
            field=self.field,
            length=length * self.proofs,
        )[0]

    def _each_proof(self, vectors: Elements) -> list[Elements]:
        """Return the parts of vectors that belong to each proof."""
        return np.split(vectors, self.proofs, axis=1)


def _require_rows(name: str, rows: Octets, reports: int, size: int) -> None:
    """Refuse an array that does not have one row of a size for each report."""
    require_that(
        rows.dtype == np.uint8 and rows.shape == (reports, size),
        name,
        f"{name} are {rows.dtype} of the shape {rows.shape}; they must be uint8 of the shape "
        f"{(reports, size)}",
    )
