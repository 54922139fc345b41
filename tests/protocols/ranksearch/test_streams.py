"""Streams that two parties of rank search share: one-time pads for shares and masks."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import NAMES, label, set_up

from veilring.protocols.masks import PairwiseKeys, continued_stream
from veilring.protocols.ranksearch import shared
from veilring.protocols.ranksearch.algorithm.shares import (
    NOTHING,
    ByteStream,
    Dealer,
    Elements,
    RoundWords,
    Scheme,
    Sides,
    joined,
    uniform_elements,
    zero_sums,
)


def recorded(stream: ByteStream, reads: list[bytes]) -> ByteStream:
    """Return a stream that keeps what is read from it."""

    def read(size: int) -> bytes:
        reads.append(stream(size))
        return reads[-1]

    return read


async def test_no_bytes_of_a_stream_are_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party reads new bytes at each draw, whatever they are for, and its peer reads the same.

    Two reads begin with equal bytes by chance with probability below 1e-30.
    """
    of_pairs, own = defaultdict[tuple[str, str], list[bytes]](list), list[bytes]()
    stream = PairwiseKeys.stream

    def of_pair(keys: PairwiseKeys, peer: str, digest: bytes) -> ByteStream:
        (me,) = set(NAMES) - set(keys.peers)
        return recorded(stream(keys, peer, digest), of_pairs[me, peer])

    monkeypatch.setattr(PairwiseKeys, "stream", of_pair)
    monkeypatch.setattr(
        shared, "continued_stream", lambda key, info: recorded(continued_stream(key, info), own)
    )
    answer = (await label(set_up(reveal="label"), {})).result
    assert answer.tied_rows is not None
    assert len(answer.tied_rows)
    for (me, peer), reads in of_pairs.items():
        assert sorted(reads) == sorted(of_pairs[peer, me])
    for reads in (*of_pairs.values(), own):
        assert len({read[:16] for read in reads}) == len(reads) > 1


async def test_an_element_of_a_pair_is_a_mask_or_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the elements that two parties draw in a round, masks are the first and shares the rest.

    Masks are added to products that are opened, and to nothing else.
    """
    words = Dealer.words
    drawn, masked = list[Elements](), list[tuple[int, Mapping[int, Elements], Elements]]()
    both = []

    def draw(scheme: Scheme, stream: ByteStream, count: int) -> Elements:
        drawn.append(uniform_elements(scheme, stream, count))
        return drawn[-1]

    def add_up(scheme: Scheme, me: int, of_pairs: Mapping[int, Elements], count: int) -> Elements:
        masked.append((me, of_pairs, zero_sums(scheme, me, of_pairs, count)))
        return masked[-1][-1]

    def use(dealer: Dealer, sides: Sides, given: Elements, masks: Elements) -> RoundWords:
        me, of_pairs, added = masked.pop()
        np.testing.assert_array_equal(masks, added)
        multiplying = set(range(dealer.scheme.multiplying))
        assert set(of_pairs) == (multiplying - {me} if len(masks) else set())
        for other, shares in zip(dealer.scheme.drawing_with(me), given, strict=True):
            first = of_pairs.get(other, NOTHING)
            whole = np.concatenate([first, shares])
            assert not len(whole) or any(np.array_equal(whole, each) for each in drawn)
            both.append(len(first) * len(shares) > 0)
        drawn.clear()
        own = words(dealer, sides, given, masks)
        parts = [part for part in sides.opened if part.values is not None]
        bare = joined(part.values for part in parts).astype(np.int64)
        sizes = [part.size.words for part in parts]
        are_masked = np.repeat([part.is_masked for part in parts], sizes).astype(np.bool_)
        added_to = (own.opened - bare) % dealer.scheme.p
        np.testing.assert_array_equal(added_to[are_masked], masks)
        assert not added_to[~are_masked].any()
        return own

    monkeypatch.setattr(shared, "uniform_elements", draw)
    monkeypatch.setattr(shared, "zero_sums", add_up)
    monkeypatch.setattr(Dealer, "words", use)
    await label(set_up(reveal="label"), {})
    assert any(both)
