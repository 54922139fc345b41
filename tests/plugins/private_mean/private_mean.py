"""Private mean: a query gets the class with the nearest mean over all parties' rows."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

import veilring as vr
from veilring.arrays import Floats, Ints
from veilring.nodes.ring import Ring
from veilring.protocols.ring.algorithm.sums import FixedPoint, SumMethod
from veilring.protocols.ring.cost import sum_cost
from veilring.protocols.ring.roles import secure_sum
from veilring.protocols.system import PARTIES

SHARES = SumMethod("shares")
Array = Floats


class PrivateMean(vr.System):
    """The nearest class mean, by one secure sum of all parties' rows and their counts.

    Attributes:
        name: `private-mean`.
        bits: The number of fractional bits in a sum.
    """

    title: ClassVar[str] = "Private mean"
    summary: ClassVar[str] = "Peers add up their rows class by class; the nearest mean labels."

    name: Literal["private-mean"] = Field("private-mean", description="private-mean")
    bits: int = Field(24, ge=1, le=32, description="a whole number from 1 to 32")

    @override
    def promise(self, *, parties: int = PARTIES) -> vr.Promise:
        return vr.Promise(
            protects="each party's rows",
            against=f"the other {parties - 1} parties",
            threat_model="semi-honest parties; all others together learn the sums of one",
            adjacency="",
            epsilon=None,
            delta=0.0,
            unit="batch",
            measure="exact sums, no ε",
            learned="all parties: the mean and the number of rows of each class",
        )

    @override
    def forecast_for(self, facts: vr.Facts, queries: int) -> vr.Forecast:
        return sum_cost(facts.parties, facts.classes, facts.features + 1, SHARES)

    @override
    def membership(self, facts: vr.Facts) -> vr.Membership:
        public = {"classes": facts.classes, "bits": self.bits}
        return vr.Membership(private_mean, batch_max=10_000, labels=np.asarray, public=public)

    @override
    def setup(self, parts: Mapping[str, vr.Rows], facts: vr.Facts) -> "MeanSetup":
        return MeanSetup(self, parts, facts)


class MeanSetup(vr.PeerSetup):
    """Parties that are ready to add up their rows."""

    @override
    def label(self, queries: Array, rng: Generator) -> Ints:
        public = self.membership.public
        fixed = FixedPoint(public["bits"], len(self.parts))
        sums = [fixed.encode(add_up(own, public["classes"])) for own in self.parts.values()]
        return nearest(queries, fixed.decode(np.add.reduce(sums)))

    @override
    def spent(self, batches: int) -> vr.Spent:
        return vr.Spent(None, 0.0, batches, "batch")


async def private_mean(
    party: vr.Party,
    rows: vr.Rows,
    *,
    client: str,
    classes: int,
    bits: int,
    queries: Array | None = None,
) -> Ints:
    """Label the client's queries by the nearest mean of all parties' rows."""
    fixed, anywhere = FixedPoint(bits, len(party.parties)), Ring(party.parties)
    own = add_up(rows, classes)
    total = await secure_sum(party, own, ring=anywhere, fixed=fixed, method=SHARES)
    asked = queries if party.me == client else None
    return nearest(np.empty((0, own.shape[1] - 1)) if asked is None else asked, total)


def add_up(rows: vr.Rows, classes: int) -> Array:
    """Return the sum and the number of rows of each class, shape (classes, features + 1)."""
    counted = np.hstack([rows.features, np.ones((len(rows), 1))])
    return np.eye(classes)[:, rows.labels] @ counted


def nearest(queries: Array, total: Array) -> Ints:
    """Return the class of the nearest mean; classes without rows are infinitely far."""
    with np.errstate(invalid="ignore", divide="ignore"):
        means = total[:, :-1] / total[:, -1:]
    far = np.linalg.norm(queries[:, None, :] - means, axis=2)
    return np.asarray(np.where(np.isnan(far), np.inf, far).argmin(axis=1), np.int64)
