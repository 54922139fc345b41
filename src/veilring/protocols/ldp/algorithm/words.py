"""Frequent words that nobody listed beforehand, found prefix by prefix.

Each client draws a public length and reports the prefix of its word of that length, by local
hashing on all words of the length. The collector extends only the most frequent prefixes by one
byte, and counts the reports about the next length that support them. A client reports once, and
spends all of epsilon on it; nothing is asked again.

Source: Wang, Li and Jha, "Locally differentially private heavy hitter identification", IEEE
Transactions on Dependable and Secure Computing 2019 (PEM).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from veilring.arrays import Ints
from veilring.privacy.checks import require
from veilring.protocols.ldp.algorithm.oracles import LocalHashing
from veilring.protocols.ldp.algorithm.randomiser import (
    INTERVAL_CONFIDENCE,
    LocalRandomiser,
    Reports,
    Sums,
    SurveyEstimate,
)
from veilring.protocols.ldp.algorithm.steps import require_columns
from veilring.protocols.ldp.algorithm.survey import Survey, ValidRows, whole_numbers

# A hash word of 64 bits then has enough high bits for all buckets.
WORD_BYTES_MAX: Final = 6
# All prefixes of this length are counted; of the longer ones only those that extend a frequent one.
_FIRST_BYTES: Final = 2
_BYTE: Final = 256
# Prefixes to extend, for each word to find: more find hardly more, and take longer.
_EXTENDED: Final = 2


@dataclass(frozen=True)
class PrefixHashing(LocalHashing):
    """Local hashing on too many values for a sum each: the reports are counted when they are read.

    The only sum is the number of reports.
    """

    name: ClassVar[str] = "prefix-olh"
    domain_max: ClassVar[int] = _BYTE**WORD_BYTES_MAX

    @property
    @override
    def cells(self) -> int:
        return 1

    @override
    def aggregate(self, reports: Reports) -> Sums:
        return np.array([len(reports)], dtype=np.int64)

    @override
    def estimate(
        self, sums: Sums, clients: int, *, confidence: float = INTERVAL_CONFIDENCE
    ) -> SurveyEstimate:
        """Return the estimates of any number of values, from the reports that support each."""
        return self._estimated(sums, clients, confidence)


@dataclass(frozen=True)
class WordSurvey(Survey):
    """A survey of the most frequent words; rows have one column, the number of a word.

    Attributes:
        longest: The number of bytes of a word that count, `WORD_BYTES_MAX` at most.
        epsilon: The maximum ε of a report.
    """

    longest: int
    epsilon: float

    name: ClassVar[str] = "words"

    def __post_init__(self) -> None:
        allowed = f"an integer from {_FIRST_BYTES} to {WORD_BYTES_MAX}"
        require(_FIRST_BYTES <= self.longest <= WORD_BYTES_MAX, "longest", self.longest, allowed)

    @property
    def lengths(self) -> Sequence[int]:
        """The length of the prefix that each question asks for, in bytes."""
        return range(_FIRST_BYTES, self.longest + 1)

    @cached_property
    def prefixes(self) -> tuple[PrefixHashing, ...]:
        """The randomiser of each length."""
        return tuple(PrefixHashing(_BYTE**length, self.epsilon) for length in self.lengths)

    @property
    @override
    def questions(self) -> tuple[LocalRandomiser, ...]:
        return self.prefixes

    @override
    def validated(self, rows: NDArray[np.int64], labels: Ints) -> ValidRows:
        require_columns(rows, 1)
        return whole_numbers(rows[:, 0], _BYTE**self.longest, 0), labels

    @override
    def encode(self, values: NDArray[np.int64], classes: Ints, question: int) -> NDArray[np.int64]:
        return values >> 8 * (self.longest - self.lengths[question])


def word_numbers(words: Iterable[str], longest: int) -> Ints:
    """Return the number of each word: its first bytes in UTF-8, filled with zeros, big-endian."""
    cut = (word.encode()[:longest].ljust(longest, b"\0") for word in words)
    return np.array([int.from_bytes(word, "big") for word in cut], dtype=np.int64)


def word_of(number: int, longest: int) -> str:
    """Return the word of a number, without zero bytes at its end.

    Bytes that are no text, such as a cut character, and characters that cannot be printed are
    escaped: a client may report any.
    """
    word = number.to_bytes(longest, "big").rstrip(b"\0").decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in word)


@dataclass(frozen=True, slots=True, eq=False)
class FoundWords:
    """The most frequent words, in falling order of their estimates.

    Attributes:
        numbers: The number of each word, shape (words,).
        estimate: The shares of the clients that were asked for whole words.
    """

    numbers: Ints
    estimate: SurveyEstimate


def find_words(
    survey: WordSurvey,
    read: Callable[[int], Iterable[Reports]],
    counts: Sequence[int],
    *,
    most: int,
    confidence: float = INTERVAL_CONFIDENCE,
) -> FoundWords:
    """Return the most frequent words from the reports, which are read once.

    A word is among them if more reports support it than the noise of all counted words together
    would reach, with the confidence. A word that nobody has is then seldom found.

    Args:
        read: Reads the accepted reports to a question, in pieces.
        counts: The number of reports to each question.
        most: The maximum number of words; at least 1.
    """
    from scipy.special import betainc

    require(most >= 1, "most", most, "an integer of at least 1")
    firsts, run = np.zeros(1, dtype=np.int64), _BYTE**_FIRST_BYTES
    every = found = support = firsts
    for question, oracle in enumerate(survey.prefixes):
        sums = np.zeros((len(firsts), run), dtype=np.int64)
        for reports in read(question):
            sums += oracle.support(reports, firsts, run)
        every = (firsts[:, None] + np.arange(run)).reshape(-1)
        # ties go to the first word, so that all readers find the same ones
        best = np.argsort(-sums.reshape(-1), kind="stable")[: _EXTENDED * most]
        found, support = every[best], sums.reshape(-1)[best]
        firsts, run = np.sort(found) * _BYTE, _BYTE
    clients, last = max(1, counts[-1]), survey.prefixes[-1]
    chance = betainc(np.maximum(support, 1), clients - support + 1, float(last.q))
    certain = np.flatnonzero((support > 0) & (chance * len(every) < 1 - confidence))[:most]
    estimate = last.estimate(support[certain], clients, confidence=confidence)
    return FoundWords(found[certain], estimate)
