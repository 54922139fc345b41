"""Malicious parties of a search by shares: detection and blame."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.protocols.ranksearch.worlds import NAMES, QUERIES, options, pooled, set_up
from tests.protocols.ring.worlds import accusations, is_among
from typing_extensions import override

from veilring.arrays import Ints
from veilring.errors import InputError, ProtocolViolation, RunFailed
from veilring.nodes.adversary import Adversary, Lines
from veilring.nodes.cluster import Cluster
from veilring.nodes.run import Run
from veilring.protocols.batches import Queries
from veilring.protocols.masks import MaskedWords
from veilring.protocols.ranksearch import SearchAnswer
from veilring.protocols.ranksearch.shared import Shares
from veilring.transport.messages import Message

LIAR, VICTIM = NAMES[1], NAMES[3]
# Of the queries, one that the first step ends.
EXACT = 0
# A step of a search with k = 3 deals, checks, multiplies and compares; then the next one deals.
COMPARES = 4


@dataclass
class OtherWords(Adversary):
    """Sends a victim wrong words in one round.

    Attributes:
        at: The round.
        made: The change of the words: all `raised` by one in the field, or only the `first` of
            them; `large`, or `short`.
    """

    at: int
    made: str = "raised"

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if self.round != self.at or to != VICTIM or not isinstance(message, Shares):
            return ((to, message),)
        words = message.words
        raised = ((words.astype(np.int64) + 1) % 251).astype(words.dtype)
        instead = {
            "raised": raised,
            "first": np.append(raised[:1], words[1:]),
            "large": np.full_like(words, 251),
            "short": words[1:],
        }[self.made]
        return ((to, Shares(digest=message.digest, words=instead)),)


class TwoBatches(Adversary):
    """Sends a victim different queries than all others."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if to == VICTIM and isinstance(message, Queries):
            return ((to, Queries(features=1 - message.features)),)
        return ((to, message),)


async def label(reveal: str, liars: dict[str, Adversary]) -> Run[SearchAnswer]:
    """Label the batch with some parties controlled by an adversary."""
    setup = set_up(reveal=reveal)
    async with Cluster(NAMES, own=setup.resident, seed=3) as cluster:
        return await cluster.run(setup.role, adversaries=liars, **options(setup, NAMES))


async def failed(reveal: str, liars: dict[str, Adversary]) -> RunFailed:
    """Return the failure of a run, after checking that each accusation includes the liar."""
    with pytest.raises(RunFailed) as caught:
        await label(reveal, liars)
    (liar,) = liars
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)
    return caught.value


@pytest.mark.parametrize("reveal", ["votes", "label"])
@pytest.mark.parametrize("at", [COMPARES, 2 * COMPARES, 3 * COMPARES])
async def test_words_sent_to_one_party_only_are_detected(reveal: str, at: int) -> None:
    """If one party is sent other words, all runs fail, and every accusation includes the liar."""
    error = await failed(reveal, {LIAR: OtherWords(at)})
    why = "different public inputs", "results that honest rows cannot have"
    assert any(part in str(each) for part in why for each in error.errors.values())


@pytest.mark.parametrize("reveal", ["votes", "label"])
async def test_queries_sent_to_one_party_only_are_detected(reveal: str) -> None:
    """If one party is sent other queries, the run fails, and accusations include the client."""
    await failed(reveal, {NAMES[0]: TwoBatches()})


@pytest.mark.parametrize("made", ["large", "short"])
@pytest.mark.parametrize("at", [1, 2, COMPARES])
async def test_impossible_words_are_refused(at: int, made: str) -> None:
    """Words outside the field, or too few words, are reported by the victim."""
    error = await failed("votes", {LIAR: OtherWords(at, made)})
    assert isinstance(error.errors[VICTIM], ProtocolViolation)


@pytest.mark.parametrize(("liar", "adding"), [(LIAR, "all-to-all"), (NAMES[0], "star")])
async def test_a_party_that_continues_its_search_is_not_convicted(liar: str, adding: str) -> None:
    """If a party is misled into continuing its search, every accusation includes the liar.

    The misled party deals while others vote: a liar or the client has made it believe that T is not
    k.
    """
    liars = {liar: OtherWords(COMPARES + 1, "first")}
    setup = set_up(reveal="votes", sum=adding)
    async with Cluster(NAMES, own=setup.resident, seed=3) as cluster:
        with pytest.raises(RunFailed) as caught:
            await cluster.run(
                setup.role, adversaries=liars, **options(setup, NAMES, QUERIES[EXACT : EXACT + 1])
            )
    found = accusations(caught.value, liar)
    assert found
    assert all(is_among(liar, error) for error in found)


@pytest.mark.parametrize("reveal", ["votes", "label"])
async def test_honest_parties_complete_the_search(reveal: str) -> None:
    """A run of honest parties ends without an accusation and with the pooled labels."""
    expected: Ints = pooled(set_up(), NAMES)
    run = await label(reveal, {})
    assert run.results[NAMES[0]].labels.tolist() == expected.tolist()
    assert len(QUERIES) == len(expected)


class ManyTied(Adversary):
    """Claims a hundred thousand tied rows for each query with ties."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        if isinstance(message, MaskedWords):
            words = tuple(each + each.dtype.type(100_000) for each in message.words)
            message = MaskedWords(digest=message.digest, words=words)
        return ((to, message),)


async def test_too_many_tied_rows_may_be_a_false_claim() -> None:
    """All parties learn that one of them may have claimed the rows, before any advice."""
    with pytest.raises(RunFailed) as caught:
        await label("label", {LIAR: ManyTied()})
    errors = [error for party, error in caught.value.errors.items() if party != LIAR]
    told = [error for error in errors if isinstance(error, InputError)]
    assert told
    for error in told:
        assert "at most 32,760 votes can be compared" in str(error)
        assert "One party may have claimed these rows" in str(error)
        assert "shows the votes to all parties" in str(error)


class NoTied(Adversary):
    """Makes the total of tied rows 0 at each query with ties, for itself as well."""

    @override
    async def sending(self, to: str, message: Message) -> Lines:
        return ((to, self._without(message)),)

    @override
    async def received(self, sender: str, message: Message) -> Message:
        return self._without(message) if sender == NAMES[0] else message

    def _without(self, message: Message) -> Message:
        if not isinstance(message, MaskedWords):
            return message
        setup = set_up()
        rows = setup.search(QUERIES, list(setup.parts.values())).tied_rows
        return MaskedWords(digest=message.digest, words=(message.words[0] - rows.astype("<u4"),))


async def test_too_few_tied_rows_fail_a_check() -> None:
    """The batch goes on with the fewest rows that can tie, and all parties refuse it at its end."""
    error = await failed("label", {LIAR: NoTied()})
    for party in set(NAMES) - {LIAR}:
        assert "caused results that honest rows cannot have" in str(error.errors[party])
