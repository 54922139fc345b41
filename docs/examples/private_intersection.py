"""Private intersection: two parties learn how many items they have in common, by Diffie-Hellman.

Each item is a point of a curve. A party multiplies points by its secret number, and the order of
two multiplications does not matter: an item that both parties have becomes one point, and without
the numbers no item can be recognised.

Source: Meadows, "A more efficient cryptographic matchmaking protocol", IEEE S&P 1986; Huberman,
Franklin and Hogg, "Enhancing privacy and trust in electronic communities", EC 1999.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from numpy.random import Generator
from pydantic import Field

from veilring import (
    Cluster,
    Constant,
    Forecast,
    LinkModel,
    Message,
    Party,
    ProtocolViolation,
    Run,
    Simulated,
    Topology,
    simulate,
)
from veilring.nodes.cluster import RUNTIMES
from veilring.protocols.promise import repeated
from veilring.testing import ProtocolRunner

CURVE: Final = ec.SECP256R1()
"""P-256: its order is a prime, and `cryptography` refuses numbers that are not on it."""
ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The number of its points (NIST SP 800-186, section 3.2.1.3)."""
POINT_BYTES: Final = 32
_DRAWN_BYTES: Final = 48
"""The bytes of a draw modulo `ORDER`, which makes all numbers equally likely up to 2**-128."""

Point = Annotated[bytes, Field(min_length=POINT_BYTES, max_length=POINT_BYTES)]
"""The first coordinate of a point, which it shares only with its negative."""


class Blinded(Message, kind="private.blinded"):
    """The sender's items as points, multiplied by its number, in the order of the results."""

    points: tuple[Point, ...]


class BlindedTwice(Message, kind="private.twice"):
    """The receiver's points, multiplied by the sender's number too, in the order of the results."""

    points: tuple[Point, ...]


async def private_intersection(party: Party, own: Sequence[str]) -> int:
    """Count the items that two parties have in common."""
    (peer,) = party.peers
    number = draw_number(party.rng)
    mine = multiply([hash_to_point(item) for item in {*own}], number)
    party.round(1)
    await party.send(peer, Blinded(points=mine))
    theirs = (await party.receive(Blinded, sender=peer, due=1)).points
    try:
        both = multiply([point_at(each) for each in theirs], number)
    except ValueError as error:
        raise ProtocolViolation(peer, "sent a number that is not on the curve") from error
    party.round(2)
    await party.send(peer, BlindedTwice(points=both))
    back = (await party.receive(BlindedTwice, sender=peer, due=2)).points
    if len(back) != len(mine):
        raise ProtocolViolation(peer, f"returned {len(back)} points of {len(mine)}")
    return len({*both} & {*back})


def draw_number(rng: Generator) -> ec.EllipticCurvePrivateKey:
    """Draw a secret number from 1 to `ORDER` - 1."""
    drawn = int.from_bytes(rng.bytes(_DRAWN_BYTES))
    return ec.derive_private_key(drawn % (ORDER - 1) + 1, CURVE)


def hash_to_point(item: str) -> ec.EllipticCurvePublicKey:
    """Return the point of an item: at the first of its hashes that is on the curve."""
    attempt = 0
    while True:
        hashed = sha256(f"veilring example {attempt}:{item}".encode()).digest()
        try:
            return point_at(hashed)
        except ValueError:  # half of all numbers are not on the curve
            attempt += 1


def point_at(first: bytes) -> ec.EllipticCurvePublicKey:
    """Return a point with this first coordinate.

    Raises:
        ValueError: If it is on no point of the curve.
    """
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, b"\x02" + first)


def multiply(
    points: Iterable[ec.EllipticCurvePublicKey], number: ec.EllipticCurvePrivateKey
) -> tuple[bytes, ...]:
    """Return the first coordinates of multiples, sorted, so that places say nothing of items."""
    return tuple(sorted(number.exchange(ec.ECDH(), point) for point in points))


def forecast(items: int, others: int) -> Forecast:
    """Return the closed form of the cost: all points travel once there and once back."""
    points = [(bytes(POINT_BYTES),) * size for size in (items, others)]
    there, back = (
        repeated(1, kind(points=points[0])).plus(repeated(1, kind(points=points[1])))
        for kind in (Blinded, BlindedTwice)
    )
    return Forecast(1, there) + Forecast(1, back)


INPUTS: Final = {"ada": ("ann", "bob", "cat"), "ben": ("bob", "dan")}


async def over_the_world() -> Run[int]:
    """Run it on links with a latency of 50 ms."""
    runtime = Simulated(Topology(LinkModel(latency=Constant(0.05))))
    own = list(INPUTS.values())
    async with Cluster(tuple(INPUTS), runtime=runtime, own=own, seed=7) as cluster:
        return await cluster.run(private_intersection)


def main() -> None:
    """Run it on all runtimes and over a wide-area network."""
    transcripts = set()
    for runtime in RUNTIMES:
        run: Run[Any] = ProtocolRunner(runtime)(
            private_intersection, tuple(INPUTS), own=list(INPUTS.values())
        )
        print(f"{runtime:10}", run.result, "in common,", Forecast.measured(run.cost))
        transcripts.add(run.transcript)
    print("forecast  ", "            ", forecast(*map(len, INPUTS.values())))
    print("different transcripts:", len(transcripts))
    print(f"10,000 and 20,000 items: {forecast(10_000, 20_000)}")
    print(f"\nlatency 50 ms: {simulate(over_the_world()).seconds:.2f} s")


if __name__ == "__main__":
    main()
