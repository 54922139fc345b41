"""The class with the most votes, for votes that stay shared."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import InputError
from veilring.protocols.ranksearch.algorithm import argmax
from veilring.protocols.ranksearch.algorithm.argmax import (
    ONE_HOT_MAX,
    VOTES_MAX,
    label_play,
    label_rounds,
    label_scheme,
    vote_bounds,
)
from veilring.protocols.ranksearch.algorithm.shares import (
    PRIMES,
    Dealer,
    Part,
    Scheme,
    play_together,
)


def labels_together(votes: np.ndarray, most: int, scheme: Scheme, seed: int = 0) -> list[int]:
    """Return the labels that all parties learn from votes of shape (n, Q, classes)."""
    rounds: list[list[tuple[int, int]]] = []

    def watch(sent: Sequence[Sequence[Part]]) -> None:
        sizes = [(part.count, part.senders) for part in sent[0]]
        rounds.append([(count, senders) for count, senders in sizes if count])

    plays = [
        label_play(Dealer(scheme, me, np.random.default_rng([seed, me])), own, most)
        for me, own in enumerate(votes.astype(np.uint64))
    ]
    first, *others = play_together(plays, scheme.p, watch)
    assert all((labels == first).all() for labels in others)
    sent = label_rounds(votes.shape[1], votes.shape[2], most, scheme)
    assert [_words(parts) for parts in rounds] == [_words(parts) for parts in sent]
    return list(first.tolist())


def _words(parts: Sequence[tuple[int, int]]) -> int:
    return sum(count * senders for count, senders in parts)


def dealt_votes(totals: np.ndarray, parties: int, rng: np.random.Generator) -> np.ndarray:
    """Return the votes of parties, shape (n, Q, classes), with the given totals."""
    shares = rng.multinomial(totals, np.full(parties, 1 / parties))
    return np.moveaxis(shares, -1, 0)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("parties", [3, 4])
def test_all_votes_of_three_classes_have_their_label(most: int, parties: int) -> None:
    """For any totals up to K, the label is the lowest class with the most votes."""
    totals = np.array(
        [each for each in itertools.product(range(most + 1), repeat=3) if sum(each) <= most]
    )
    votes = dealt_votes(totals, parties, np.random.default_rng(most))
    scheme = label_scheme(parties, 3, most)
    assert labels_together(votes, most, scheme) == totals.argmax(axis=1).tolist()


@pytest.mark.parametrize("parties", [3, 4])
def test_all_pairs_of_votes_compare_by_bits(parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the smallest field for them, all votes up to K of two and three classes compare."""
    monkeypatch.setattr(argmax, "ONE_HOT_MAX", 0)
    for classes in (2, 3):
        totals = np.array(list(itertools.product(range(7), repeat=classes)))
        votes = dealt_votes(totals, parties, np.random.default_rng(classes))
        labels = labels_together(votes, 6, Scheme(13, parties))
        assert labels == totals.argmax(axis=1).tolist()


@given(
    st.integers(3, 8),
    st.integers(1, 11),
    st.sampled_from((1, 2, 5, 20, 64, 65, 125, 126, VOTES_MAX)),
    st.integers(0, 2**32),
)
def test_labels_equal_those_of_the_totals(parties: int, classes: int, most: int, seed: int) -> None:
    """For any number of votes, including ties and no votes, labels are the pooled ones."""
    rng = np.random.default_rng(seed)
    some = rng.multinomial(rng.integers(0, most + 1, 4), np.full(classes, 1 / classes))
    even = np.full((1, classes), most // classes)
    totals = np.vstack([some, even, np.zeros_like(even), most * np.eye(classes, dtype=np.int64)])
    votes = dealt_votes(totals, parties, rng)
    scheme = label_scheme(parties, classes, most)
    assert labels_together(votes, most, scheme, seed) == totals.argmax(axis=1).tolist()


def test_the_field_fits_parties_classes_and_votes() -> None:
    """It has one byte if possible, and fits twice the votes if they are compared by bits."""
    assert label_scheme(8, 10, ONE_HOT_MAX).p == label_scheme(8, 10, 125).p == PRIMES[0]
    assert {
        scheme.p
        for scheme in (label_scheme(8, 10, 126), label_scheme(8, 251, 5), label_scheme(251, 2, 5))
    } == {PRIMES[1]}
    assert label_scheme(8, 10, VOTES_MAX).p == PRIMES[1]
    with pytest.raises(InputError, match='use reveal = "votes"'):
        label_scheme(8, 10, VOTES_MAX + 1)


def test_queries_are_labelled_with_at_most_three_bounds() -> None:
    """Tied queries share a bound with those whose votes are compared in the same way."""
    tied = np.array([False, True, True, False, True, True])
    bounds = vote_bounds(tied, np.array([7, 65, 64, 900]), k=5)
    assert bounds.tolist() == [5, 64, 900, 5, 64, 900]
    assert vote_bounds(np.zeros(2, np.bool_), np.empty(0, np.int64), k=3).tolist() == [3, 3]
