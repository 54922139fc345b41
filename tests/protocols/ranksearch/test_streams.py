"""Streams that two parties of rank search share: one-time pads for shares and masks."""

from collections import defaultdict

import pytest
from tests.protocols.ranksearch.worlds import NAMES, label, set_up

from veilring.protocols.masks import PairwiseKeys, continued_stream
from veilring.protocols.ranksearch import shared
from veilring.protocols.ranksearch.algorithm.shares import ByteStream


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
