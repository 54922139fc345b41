"""Frequent words without a list: prefixes as reports, and the words that are found in them."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.privacy.generators import FALSE_ALARM, seeded
from tests.refusals import require_refused

from veilring.arrays import Ints
from veilring.protocols.ldp.algorithm.oracles import HashFamily
from veilring.protocols.ldp.algorithm.survey import answer
from veilring.protocols.ldp.algorithm.words import (
    FoundWords,
    PrefixHashing,
    WordSurvey,
    find_words,
    word_numbers,
    word_of,
)


def found_among(
    survey: WordSurvey, numbers: Ints, seed: str, *, confidence: float = 1 - FALSE_ALARM
) -> FoundWords:
    """Return the words that are found in the reports of clients."""
    labels = np.zeros(len(numbers), dtype=np.int64)
    reports = answer(survey, numbers[:, None], labels, seeded(seed)).reports
    for oracle, some in zip(survey.prefixes, reports, strict=True):
        assert oracle.accept(some).all()
    pieces = [np.array_split(some, 3) for some in reports]
    counts = [len(some) for some in reports]
    return find_words(survey, pieces.__getitem__, counts, most=32, confidence=confidence)


def zipf(words: int, clients: int, exponent: float, seed: str) -> tuple[Ints, Ints]:
    """Return words of 48 bits in falling order of their shares, and those of clients."""
    rng = seeded("words", seed)
    every = rng.choice(1 << 48, words, replace=False)
    shares = np.arange(1, words + 1) ** -exponent
    return every, every[rng.choice(words, clients, p=shares / shares.sum())]


def f1(found: Ints, true: Ints) -> float:
    """Return the harmonic mean of precision and recall."""
    return 2 * len(np.intersect1d(found, true)) / (len(found) + len(true))


def test_frequent_words_are_found_with_their_shares() -> None:
    """Of 12,000 clients, three words are found, no other one, and intervals have their shares."""
    texts: Sequence[str] = ["yes", "no", "naï", *(f"{number:04}" for number in range(400))]
    shares = np.array([0.4, 0.3, 0.2, *[0.1 / 400] * 400])
    who = seeded("texts").choice(len(texts), 12_000, p=shares)
    found = found_among(WordSurvey(4, 4.0), word_numbers(texts, 4)[who], "found")
    assert [word_of(number, 4) for number in found.numbers.tolist()] == ["yes", "no", "naï"]
    estimate = found.estimate
    assert (estimate.low < estimate.values).all()
    assert (estimate.values < estimate.high).all()
    assert np.abs(estimate.values - shares[:3]).max() < 5 * np.sqrt(
        estimate.variance.max() + 0.3 / 3000
    )


def test_nothing_is_found_in_noise() -> None:
    """Words of one client each are not listed: all counts together are as noise allows."""
    numbers = seeded("single").integers(1 << 48, size=4000)
    assert len(found_among(WordSurvey(4, 4.0), numbers >> 16, "noise").numbers) == 0


@pytest.mark.slow
def test_the_most_frequent_of_a_million_are_found() -> None:
    """Of 48 bits, Zipf 1.3 and epsilon 4, the F1 of the top 32 is at least 0.9."""
    every, numbers = zipf(10_000, 1_000_000, 1.3, "million")
    found = found_among(WordSurvey(6, 4.0), numbers, "million", confidence=0.95)
    assert f1(found.numbers, every[:32]) >= 0.9


def test_words_are_numbers_of_their_first_bytes() -> None:
    """Longer words are cut, shorter ones filled; what cannot be printed is escaped."""
    words = ["", "a", "abc", "abcd", "aé"]
    numbers = word_numbers(words, 3)
    assert numbers.tolist() == [0, 0x610000, 0x616263, 0x616263, 0x61C3A9]
    assert [word_of(number, 3) for number in numbers.tolist()] == ["", "a", "abc", "abc", "aé"]
    assert word_of(0x611B5B, 3) == r"a\x1b["
    assert word_of(0x6162C3, 3) == r"ab\xc3"


def test_a_client_reports_one_prefix_of_a_random_length() -> None:
    """Each length is as likely, and the report is about the first bytes of the word."""
    survey = WordSurvey(5, 1.0)
    assert [*survey.lengths] == [2, 3, 4, 5]
    number = word_numbers(["hello"], 5)
    prefixes = [survey.encode(number, number, question).tolist() for question in range(4)]
    assert prefixes == [[number[0] >> 24], [number[0] >> 16], [number[0] >> 8], [number[0]]]
    drawn = answer(
        survey, np.full((8000, 1), number[0]), np.zeros(8000, np.int64), seeded("length")
    )
    assert all(1800 < len(reports) < 2200 for reports in drawn.reports)
    for longest in (1, 7):
        require_refused("longest is", WordSurvey, longest, 1.0)
    with pytest.raises(ValueError, match="column 0"):
        survey.validated(np.array([[1 << 40]]), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_long_words_are_hashed_by_definition(epsilon: float) -> None:
    """Support is that of the definition in whole numbers, and collisions have the stated rate."""
    oracle, rng = PrefixHashing(256**6, epsilon), seeded("long")
    family = oracle.family
    assert (family.word_bits, family.high_bits) == (64, 17)
    reports = oracle.perturb(rng.integers(256**6, size=40), rng)
    assert reports.shape == (40, oracle.report_bytes) == (40, 17)
    firsts = np.array([0, 256**5 * 7, 256**6 - 4])
    counted = oracle.support(reports, firsts, 4)
    for row, first in zip(counted.tolist(), firsts.tolist(), strict=True):
        values = range(first, first + 4)
        assert row == [
            sum(supports(family, each.tobytes(), value) for each in reports) for value in values
        ]
    two = np.array([3, 256**6 - 1])
    a, b = rng.integers(0, 1 << 64, (2, 100_000, 1), dtype=np.uint64, endpoint=False)
    same = np.ptp(family.bucket(a, b, two), axis=1) == 0
    assert abs(same.mean() - float(family.collision)) < 5 / np.sqrt(100_000)


def supports(family: HashFamily, report: bytes, value: int) -> bool:
    """Return whether a report supports a value, by the definition."""
    a, b = (int.from_bytes(report[start : start + 8], "little") for start in (0, 8))
    high = ((a * value + b) % (1 << 64)) >> (64 - family.high_bits)
    return high * family.buckets >> family.high_bits == report[16]
