"""The draft's test vectors, as rows."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veilring.arrays import Bools
from veilring.protocols.prio.algorithm.fields import Octets
from veilring.protocols.prio.algorithm.prio3 import Preparation, Prio3

DATA = Path(__file__).parent / "data"
NAMES = sorted(path.stem for path in DATA.glob("Prio3*.json"))
PROOFS = 4
"""The number of proofs in the vector with several, which follows from its sizes."""


def rows(texts: Iterable[str]) -> Octets:
    """Return rows of bytes from hexadecimal texts."""
    encoded = [bytes.fromhex(text) for text in texts]
    return np.frombuffer(b"".join(encoded), dtype=np.uint8).reshape(len(encoded), -1)


@dataclass(frozen=True)
class Vector:
    """One file of the draft."""

    data: dict[str, Any]
    prio: Prio3

    @property
    def shares(self) -> int:
        """The number of aggregators."""
        return int(self.data["shares"])

    @property
    def verify_key(self) -> bytes:
        """The key of verification."""
        return bytes.fromhex(self.data["verify_key"])

    def each(self, name: str) -> Octets:
        """Return the rows of a value that each report has once."""
        return rows(report[name] for report in self.data["prep"])

    def of(self, name: str, aggregator: int) -> Octets:
        """Return the rows of a value that each aggregator has of each report."""
        found = [report[name] for report in self.data["prep"]]
        if name == "prep_shares":  # there is one round
            found = [rounds[0] for rounds in found]
        return rows("".join(share[aggregator]) for share in found)

    @property
    def measurements(self) -> Any:
        """The measurements."""
        return np.array([report["measurement"] for report in self.data["prep"]])

    @property
    def messages(self) -> Octets:
        """The preparation messages."""
        return rows(report["prep_messages"][0] for report in self.data["prep"])


def load(name: str) -> Vector:
    """Return a vector and the scheme that it is of."""
    data = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    shares, kind = data["shares"], name.rpartition("_")[0].removeprefix("Prio3")
    given = {key: data[key] for key in ("length", "bits", "chunk_length") if key in data}
    make: dict[str, Callable[..., Prio3]] = {
        "Count": Prio3.count,
        "Sum": Prio3.sum_,
        "SumVec": Prio3.sum_vec,
        "Histogram": Prio3.histogram,
        "SumVecWithMultiproof": lambda **sizes: Prio3.sum_vec_multiproof(proofs=PROOFS, **sizes),
        "MultiHotHistogram": lambda **sizes: Prio3.multi_hot_histogram(
            ones_max=data["max_count"], **sizes
        ),
    }
    return Vector(data, make[kind](**given, shares=shares))


@dataclass
class Batch:
    """All rows that a batch of reports has on its way, any of which a test may change."""

    prio: Prio3
    nonces: list[Octets]
    keys: list[bytes]
    public: list[Octets]
    inputs: list[Octets]

    def accepted(
        self, change: Sequence[Octets] = (), messages: Octets | None = None
    ) -> tuple[Bools, list[Bools]]:
        """Return which reports all aggregators accept, and which each of them could decode.

        Args:
            change: The bits to flip in the preparation shares of each aggregator: the batch is then
                one report, which is repeated once prepared.
            messages: The bits to flip in the messages, likewise.
        """
        everyone = zip(self.keys, self.nonces, self.public, self.inputs, strict=True)
        preparations = [
            self.prio.prepare(key, aggregator, *of_one)
            for aggregator, (key, *of_one) in enumerate(everyone)
        ]
        if copies := max(map(len, (*change, messages if messages is not None else ())), default=0):
            preparations = [_repeated(preparation, copies) for preparation in preparations]
        shares = [preparation.prep_shares for preparation in preparations]
        for i, bits in enumerate(change):
            shares[i] = shares[i] ^ bits
        found, valid = self.prio.combine(*shares)
        if messages is not None:
            found = found ^ messages
        for preparation in preparations:
            valid = valid & preparation.valid & self.prio.finish(preparation, found)[1]
        return valid, [preparation.valid for preparation in preparations]


def _repeated(preparation: Preparation, copies: int) -> Preparation:
    """Return the preparation of one report, many times."""
    return Preparation(
        np.repeat(preparation.out_shares, copies, axis=-1),
        np.repeat(preparation.joint_seeds, copies, axis=0),
        np.repeat(preparation.prep_shares, copies, axis=0),
        np.repeat(preparation.valid, copies),
    )


def batch_of(vector: Vector, report: int, copies: int) -> Batch:
    """Return one report of a vector, many times."""

    def repeated(found: Octets) -> Octets:
        return np.repeat(found[report : report + 1], copies, axis=0)

    many, everyone = vector.shares, range(vector.shares)
    return Batch(
        vector.prio,
        [repeated(vector.each("nonce"))] * many,
        [vector.verify_key] * many,
        [repeated(vector.each("public_share"))] * many,
        [repeated(vector.of("input_shares", aggregator)) for aggregator in everyone],
    )


def one_bit_each(size: int) -> Octets:
    """Return rows of bytes, each with one bit: the n-th row one of its n-th byte."""
    found = np.zeros((size, size), dtype=np.uint8)
    np.fill_diagonal(found, 1 << np.arange(size) % 8)
    return found
