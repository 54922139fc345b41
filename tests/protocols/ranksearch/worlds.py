"""Parties of rank search, batches for them, and tables: real ones, and integers with many ties."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pytest
from tests.protocols.ring.worlds import play

from veilring.arrays import Floats, Ints
from veilring.data.sources import load
from veilring.data.table import Rows, pairwise_distances, partition, scale_to_unit
from veilring.nodes.adversary import Adversary
from veilring.nodes.run import Run
from veilring.protocols.promise import Facts
from veilring.protocols.ranksearch.algorithm.comparing import shared_search
from veilring.protocols.ranksearch.algorithm.search import Found, clipped_counts
from veilring.protocols.ranksearch.algorithm.shares import (
    Dealer,
    Draws,
    Elements,
    Part,
    Play,
    Scheme,
    Sides,
    Size,
    zero_sums,
)
from veilring.protocols.ranksearch.algorithm.votes import nearest_rows
from veilring.protocols.ranksearch.parameters import SearchParameters
from veilring.protocols.ranksearch.roles import SearchAnswer
from veilring.protocols.ranksearch.system import RankSearch, SearchSetup
from veilring.protocols.system import together

NAMES: Final = tuple(f"party-{n}" for n in range(4))
QUERIES: Final = np.random.default_rng(2).integers(0, 4, (12, 3)) / 3


_R = TypeVar("_R")


class SentPart(NamedTuple):
    """The words that a party sends in a part of a round; none if it does not send."""

    size: Size
    words: Elements | None

    def to(self, party: int) -> Elements:
        """Return the words for a party."""
        assert self.words is not None
        return self.words if self.size.is_public else self.words[party]


Sent = Sequence[Sequence[SentPart]]
"""The parts that each party sends in a round."""


class Seat(Dealer):
    """A dealer with sources of the shares that others draw, and of its masks: one draw a round."""

    def __init__(self, scheme: Scheme, me: int, draws: Draws, given: Draws, masks: Draws) -> None:
        super().__init__(scheme, me, draws)
        self.given, self.masks = given, masks

    def sent(self, parts: Sequence[Part]) -> list[SentPart]:
        """Return the party's words of a round, part by part."""
        sides = Sides.of(parts)
        count = sum(part.size.words for part in sides.dealt if part.values is not None)
        masked = sum(
            part.size.words for part in parts if part.is_masked and part.values is not None
        )
        words = self.words(sides, self.given(count), self.masks(masked))
        sent, starts = dict[Part, SentPart](), {False: 0, True: 0}
        for part in (*sides.dealt, *sides.opened):
            size, is_public = part.size, part.size.is_public
            of_side = words.opened if is_public else words.dealt
            place = slice(starts[is_public], starts[is_public] + size.words)
            is_sent = part.values is not None
            sent[part] = SentPart(size, of_side[..., place] if is_sent else None)
            starts[is_public] += size.words * is_sent
        return [sent[part] for part in parts]


def bound(features: int, classes: int, **settings: Any) -> SearchParameters:
    """Return rank search with the given options for rows of this shape."""
    return RankSearch(**settings).bind(Facts(5, features, classes))


def draws_of(p: int, *seed: int) -> Draws:
    """Return a seeded source of uniform elements of a field of any size."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, p, count).astype(np.uint16)


def dealers_of(scheme: Scheme, seed: int, kind: type[Seat] = Seat) -> list[Seat]:
    """Return a dealer for each party, with seeded sources of its own and with each other party."""

    def dealer(me: int) -> Seat:
        given = draws_of(scheme.p, seed, me, 1)
        multiplying = range(scheme.multiplying)
        pairs = {
            other: draws_of(scheme.p, seed, *sorted((me, other)), 2)
            for other in range(scheme.parties)
            if other != me
        }
        return kind(
            scheme,
            me,
            draws_of(scheme.p, seed, me, 0),
            lambda count: given(scheme.threshold * count).reshape(scheme.threshold, count),
            lambda count: zero_sums(
                scheme,
                me,
                {other: pairs[other](count) for other in multiplying if other != me},
                count,
            ),
        )

    return [dealer(me) for me in range(scheme.parties)]


def summed(sent: Iterable[SentPart], to: int, scheme: Scheme) -> Elements:
    """Return the sum of the words that the senders of a part send to a party."""
    words = [part.to(to).astype(np.int64) for part in sent if part.words is not None]
    return scheme.elements(np.sum(words, axis=0, dtype=np.int64))


def play_together(
    plays: Sequence[Play[_R]], seats: Sequence[Seat], watch: Callable[[Sent], object] | None = None
) -> list[_R]:
    """Play all parties in this process, round by round, and return the result of each."""
    results: list[_R] = []
    totals: list[Any] = [None] * len(plays)
    while True:
        sent: list[Sequence[SentPart]] = []
        for party, seat, sums in zip(plays, seats, totals, strict=True):
            try:
                sent.append(seat.sent(party.send(sums)))
            except StopIteration as end:
                results.append(end.value)
        if results:
            return results
        if watch is not None:
            watch(sent)
        together = list(zip(*sent, strict=True))
        scheme = seats[0].scheme
        totals = [[summed(parts, me, scheme) for parts in together] for me in range(len(plays))]


def search_by_shares(
    queries: Floats,
    parts: Sequence[Rows],
    parameters: SearchParameters,
    *,
    kind: type[Seat] = Seat,
    seed: int = 0,
    watch: Callable[[Sent], object] | None = None,
) -> list[Found]:
    """Search with shared counts in this process, and return the results of all parties."""
    k, scheme = parameters.system.k, parameters.scheme(len(parts))

    def play(dealer: Dealer, rows: Rows) -> Play[Found]:
        near = nearest_rows(queries, rows, k).distances
        search = parameters.interval_search(len(queries))
        return shared_search(dealer, partial(clipped_counts, near), search, k, pytest.fail)

    dealers = dealers_of(scheme, seed, kind)
    plays = [play(dealer, rows) for dealer, rows in zip(dealers, parts, strict=True)]
    return play_together(plays, dealers, watch)


def ready(
    parts: Mapping[str, Rows] | Sequence[Rows], classes: int = 3, **settings: Any
) -> SearchSetup:
    """Return parties that are ready to search, by default named by their number."""
    named = parts if isinstance(parts, Mapping) else {f"party-{n}": p for n, p in enumerate(parts)}
    features = next(iter(named.values())).features.shape[1]
    return RankSearch(**settings).setup(named, Facts(len(named), features, classes))


def set_up(**settings: Any) -> SearchSetup:
    """Return parties that are ready to search, with rows on a coarse grid: many distances tie.

    Their votes tie as well, unless k prevents it.
    """
    rng = np.random.default_rng(1)
    parts = [Rows(rng.integers(0, 4, (30, 3)) / 3, rng.integers(0, 3, 30)) for _ in NAMES]
    return ready(parts, **{"k": 3, **settings})


def options(
    setup: SearchSetup, among: tuple[str, ...], queries: Floats = QUERIES
) -> Mapping[str, Any]:
    """Return the options for a cluster's run in which the first party asks."""
    play = setup.play(queries, among=among)
    return {"only": play.only, **play.public}


async def label(
    setup: SearchSetup,
    liars: Mapping[str, Adversary],
    queries: Floats = QUERIES,
    *,
    own: Sequence[object] = (),
    **how: Any,
) -> Run[SearchAnswer]:
    """Label queries with some parties controlled by an adversary, by default in memory."""
    names = tuple(setup.parts)
    asked = options(setup, how.get("among", names), queries)
    own = own or setup.resident
    return await play(setup.role, own, names=names, adversaries=liars, **asked, **how)


def pooled(setup: SearchSetup, among: tuple[str, ...]) -> Ints:
    """Return the labels of a classifier with the rows of some parties in one place."""
    return setup.search(QUERIES, [together(setup.parts, among)]).votes.labels


LARGE = "breast-cancer", "digits", "integers"
TABLES = ("wine", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE))


@cache
def table(name: str) -> tuple[Rows, Floats, int]:
    """Return every other row of a table, the queries, and the number of classes.

    All rows of a table are queries, except for digits with its 1,797 rows, where every third is.
    There are 200 rows of three whole numbers from 0 to 3: each place has three rows in the mean.
    """
    if name == "integers":
        rng = np.random.default_rng(8)
        X, y, classes = rng.integers(0, 4, (400, 3)) / 3, rng.integers(0, 3, 400), 3
    else:
        loaded = scale_to_unit(load(name))
        X, y, classes = loaded.X, loaded.y, len(loaded.features.classes)
    return Rows(X[::2], y[::2]), X[::3] if name == "digits" else X, classes


def dealings(rows: Rows) -> Iterator[tuple[str, list[Rows]]]:
    """Yield partitions of rows: even, skewed, by class, and with all rows at the last party."""
    rng = np.random.default_rng(9)

    def deal(dealt: list[Ints]) -> list[Rows]:
        return [Rows(rows.features[part], rows.labels[part]) for part in dealt]

    for parties in (3, 8, 30):
        split = partial(partition, rows.labels, parties, rng)
        yield f"even among {parties}", deal(split(kind="iid"))
        yield f"by class among {parties}", deal(split(kind="by-label"))
        yield f"skewed among {parties}", deal(split(kind="dirichlet", alpha=0.1))
    yield "all at one", deal([*[np.zeros(0, np.int64)] * 3, np.arange(len(rows))])


def votes_within(queries: Floats, rows: Rows, classes: int, k: int) -> Floats:
    """Count rows by class up to the distance of the k-th nearest, by sorting all distances."""
    distances = pairwise_distances(queries, rows.features)
    radius = np.sort(distances, axis=1)[:, min(k, len(rows)) - 1]
    return votes_at(distances, rows.labels, classes, radius, np.ones_like(distances))


def votes_at(
    distances: Floats, labels: Ints, classes: int, radius: Floats, weights: Floats
) -> Floats:
    """Add up the weights of the rows within each radius by class, shape (queries, classes)."""
    voting = np.where(distances <= radius[:, None], weights, 0.0)
    return np.stack([voting[:, labels == each].sum(axis=1) for each in range(classes)], axis=1)
