"""`veilring ask --near`: what is near a place that the server does not learn."""

from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.deployment.config import FilePath, TermsConfig, load_credentials
from veilring.deployment.connecting import connected, require_party
from veilring.deployment.places import PlacesTerms, load_places_terms
from veilring.deployment.projection import LATITUDE_MAX, LONGITUDE_MAX
from veilring.errors import InputError, ScenarioError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.nodes.service import convening
from veilring.privacy.ledger import Budgets, open_ledger
from veilring.privacy.response import EPSILON_MAX
from veilring.protocols.treewalk.algorithm.rivals import bucket_law
from veilring.protocols.treewalk.algorithm.steps import Comparison
from veilring.protocols.treewalk.algorithm.tree import depth_of
from veilring.protocols.treewalk.algorithm.walks import SPLITS_MAX, Variant
from veilring.protocols.treewalk.memory import Answer, Memory, remembered, snap
from veilring.protocols.treewalk.one_message import BUCKET_SPLITS, BucketPlan
from veilring.protocols.treewalk.plan import Plan
from veilring.protocols.treewalk.planner import own_probability
from veilring.protocols.treewalk.roles import Keeper, Nearest, bucket_client, walk_client
from veilring.protocols.treewalk.service import RESPONSE, WALK
from veilring.randomness import Streams

_DEGREES: Final = 6  # decimals: a tenth of a metre
_METRES: Final = 1


@dataclass(frozen=True, slots=True, repr=False)
class Near:
    """A private place, and what may be spent on it.

    Attributes:
        latitude: In degrees.
        longitude: In degrees.
        epsilon: Of the question, at delta 0; above 0 and at most 40.

    Raises:
        InputError: If epsilon is out of range, or there is no such place on Earth; the error does
            not repeat the place.
    """

    latitude: float
    longitude: float
    epsilon: float

    def __post_init__(self) -> None:
        if not (abs(self.latitude) <= LATITUDE_MAX and abs(self.longitude) <= LONGITUDE_MAX):
            allowed = f"a latitude up to ±{LATITUDE_MAX:g} and a longitude up to ±{LONGITUDE_MAX:g}"
            raise InputError("--near", "not on Earth", allowed)
        if not 0 < self.epsilon <= EPSILON_MAX:
            raise InputError("--epsilon", self.epsilon, f"above 0 and up to {EPSILON_MAX:g}")

    @classmethod
    def parse(cls, text: str, epsilon: float) -> Self:
        """Read `LAT,LON`.

        Raises:
            InputError: If it is something else; the error does not repeat it.
        """
        try:
            latitude, longitude = map(float, text.split(","))
        except ValueError:
            allowed = "LAT,LON in degrees, such as 37.77,-122.42"
            raise InputError("--near", "something else", allowed) from None
        return cls(latitude, longitude, epsilon)


class SeekerConfig(TermsConfig):
    """A client that looks for places near others, which it does not tell.

    Attributes:
        role: `seeker`.
        ask: The server of places.
        budget: The epsilon that all questions may spend together, for ever.
        by: `response` names one bucket in one message; `walk` takes a step a level, and needs far
            more epsilon to be as good.
        splits: 2**splits places come back.
        grid: Metres between the points of the grid to which a place is moved first, so that the
            same place asks the same question.
        show: How many of the places that came back are shown.
        ledger: The file that remembers what was asked, answered and spent; as secret as the
            questions. Never delete it.
        amend: Whether another budget than before is meant; what was spent stays spent.
    """

    role: Literal["seeker"] = Field(description="seeker")
    ask: str = Field(description="the name of a party of the roster")
    budget: float = Field(gt=0, description="a number above 0")
    by: Literal["response", "walk"] = Field("response", description="response or walk")
    splits: int = Field(BUCKET_SPLITS, ge=0, le=SPLITS_MAX, description=f"0 to {SPLITS_MAX}")
    grid: float = Field(10.0, gt=0, description="a number above 0")
    show: int = Field(5, ge=1, description="a whole number above 0")
    ledger: FilePath = "questions.ledger"
    amend: bool = Field(default=False, description="true or false")


async def seek(config: SeekerConfig, near: Near) -> dict[str, list[object]]:
    """Return the nearest of the places that were found around a private place.

    A place that was asked before, as much as the grid can tell, gets the same answer: nothing is
    sent and nothing spent. Interrupted at any point, the same question goes on from there.

    Args:
        config: Who asks whom, and how.
        near: Where, and how much may be spent on it.

    Returns:
        The columns `place` (its row in the server's file, from 1), `latitude`, `longitude` and
        `metres`, the nearest first.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If the place is outside of the terms' area; nothing was said or spent.
        BudgetExhausted: If the budget does not suffice. Nothing was said.
        HandshakeError: If the server cannot be reached; nothing was spent.
        VeilringError: If it did not answer; asking again does not spend again.
    """
    identity, roster = load_credentials(config)
    terms = load_places_terms(Path(config.terms))
    require_party(roster, "ask", config.ask)
    degrees = np.array([[near.latitude, near.longitude]])
    if not terms.area.contains(degrees):
        raise InputError("--near", "outside of the map", str(terms.area))
    here = terms.projection.to_metres(degrees)
    asked, asking = snap(here, config.grid), _Asking(config, terms, near.epsilon)

    async def ask(queries: NDArray[np.float64], keeper: Keeper) -> Nearest:
        async with connected(
            identity, roster, config.ask, limits=config.limits, terms=terms.keys
        ) as (node, pair):
            return await asking(node, pair, queries, keeper)

    budgets = Budgets("epsilon", total=config.budget)
    with open_ledger(Path(config.ledger), budgets, amend=config.amend) as ledger:
        memory = Memory(ledger, config.ask, asking.terms)
        (answer,) = await remembered(memory, asked, ask, most=near.epsilon)
    return _columns(answer, here[0], terms, config.show)


@dataclass(frozen=True, slots=True)
class Chance:
    """How often an answer is about the place that was asked for: public, and the same everywhere.

    Attributes:
        probability: That the bucket that came back is the one that the place is in.
        buckets: Of how many.
    """

    probability: float
    buckets: int


def chance_of(config: SeekerConfig, epsilon: float) -> Chance:
    """Return how often a question of this epsilon gets the places of its own bucket.

    Raises:
        ScenarioError: If a file does not fit.
        InputError: If there are fewer than two buckets, or epsilon is out of range.
    """
    asking = _Asking(config, load_places_terms(Path(config.terms)), epsilon)
    depth = depth_of(asking.places.places)
    law = bucket_law(depth, config.splits, epsilon)
    if config.by == "response":
        return Chance(float(law.p), law.domain)
    variant = Variant("early", config.splits)
    slip = 1 / (1 + exp(asking.utility(variant).epsilon / 2))
    return Chance(own_probability(variant, depth, slip), law.domain)


@dataclass(frozen=True, slots=True)
class _Asking:
    """By which mechanism a question is asked."""

    config: SeekerConfig
    places: PlacesTerms
    epsilon: float

    @property
    def terms(self) -> bytes:
        """All that is public about how it is asked."""
        how = (self.config.by, self.config.splits, self.config.grid, self.epsilon)
        return self.places.digest + repr(how).encode()

    async def __call__(
        self, node: Node, pair: Parties, queries: NDArray[np.float64], keeper: Keeper
    ) -> Nearest:
        session, terms = Streams().token("session"), self.places.digest
        if self.config.by == "response":
            plan = BucketPlan(self.config.splits)
            nearest, _ = await node.run(
                convening(bucket_client, RESPONSE, terms),
                session,
                pair,
                queries,
                plan=plan,
                epsilon=self.epsilon,
                keeper=keeper,
            )
            return nearest
        variant = Variant("early", self.config.splits)
        return await node.run(
            convening(walk_client, WALK, terms),
            session,
            pair,
            queries,
            plan=Plan("comparison", variant),
            utility=self.utility(variant),
            keeper=keeper,
        )

    def utility(self, variant: Variant) -> Comparison:
        """Return the steps of a walk that spends epsilon in the tree of the terms."""
        depth = depth_of(self.places.places)
        if self.config.splits >= depth:
            raise ScenarioError("splits", self.config.splits, f"0 to {depth - 1} here")
        return Comparison(2 * self.epsilon / variant.compositions(depth))


def _columns(
    answer: Answer, here: NDArray[np.float64], terms: PlacesTerms, show: int
) -> dict[str, list[object]]:
    # A place whose leaf stands early in the tree came back twice.
    numbers, first = np.unique(answer.found, return_index=True)
    points = answer.points[first]
    metres = np.sqrt(np.square(points - here).sum(axis=1))
    nearest = np.argsort(metres, kind="stable")[:show]
    degrees = terms.projection.to_degrees(points[nearest]).round(_DEGREES)
    return {
        "place": (numbers[nearest] + 1).tolist(),
        "latitude": degrees[:, 0].tolist(),
        "longitude": degrees[:, 1].tolist(),
        "metres": metres[nearest].round(_METRES).tolist(),
    }
