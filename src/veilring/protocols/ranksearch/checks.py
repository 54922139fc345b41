"""A party's checks of opened values against its own rows, and the exchange of their outcome.

A party that aborted when its own check failed would reveal its rows: a peer that falsifies a total
a little more in each batch would learn the exact count of every party from who aborts when. A
failed check therefore changes nothing that a party sends until the batch ends. Then each party adds
to a masked sum: zeros if all its checks passed, random words otherwise. If the sum is not 0, all
parties reject the batch. The sum reveals that a check failed, and nothing about whose it was:
random words of one party have the same distribution as those of several.

The exchange takes two rounds. First each party commits to its masked words by their hash, and then
it sends them, so that no party can choose its own after seeing those of others and make the sum 0.
Both messages go to all parties, even if the client adds up totals: it could otherwise report a sum
of 0. They carry the hash of all public inputs, so parties that were told different totals or labels
notice it here.
"""

from typing import Annotated, Final

import numpy as np
from pydantic import Field

from veilring.errors import ProtocolViolation
from veilring.nodes.party import Party, broadcast
from veilring.protocols.digests import DIGEST_BYTES, Digest, digest_of
from veilring.protocols.forecast import Forecast, repeated
from veilring.protocols.masks import Bound, PairwiseKeys, Public, receive_bound

# Random words are 0, and a failed check unnoticed, with probability 2^-256. Nobody can find masked
# words of this size from their hash.
CHECK_BYTES: Final = 32
CHECK_ROUNDS: Final = 2
"""The number of communication rounds of `Checks.passed`."""


class Commitment(Bound, kind="ranksearch.commitment"):
    """The hash of a party's name and masked words, sent to each peer before the words.

    Attributes:
        commitment: The hash.
    """

    commitment: Digest


class CheckWords(Bound, kind="ranksearch.check"):
    """A party's masked words about its checks, sent to each peer.

    Attributes:
        words: Little-endian words of 64 bits.
    """

    words: Annotated[bytes, Field(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]


class Checks:
    """One party's checks of a batch.

    Args:
        party: This participant.
        keys: The keys of the session's masks.
    """

    def __init__(self, party: Party, keys: PairwiseKeys) -> None:
        self._party, self._keys, self._failed = party, keys, False

    def fail(self) -> None:
        """Record that opened values contradict the party's own rows, and go on."""
        self._failed = not self._party.ignores_checks

    async def passed(self, public: Public, first_round: int) -> bool:
        """Return whether the checks of all parties passed, equally at all parties.

        Args:
            public: The public inputs, including all results.
            first_round: The communication round of the commitments.

        Raises:
            ProtocolViolation: If a peer sent other words than it had committed to.
            Tampered: If the parties' public inputs differ.
        """
        party = self._party
        drawn = np.frombuffer(party.rng.bytes(CHECK_BYTES), "<u8")  # in any case: in equal time
        (total,) = self._keys.mask((drawn * np.uint64(self._failed),), public.digest)
        words = total.tobytes()
        party.round(first_round)
        await broadcast(
            party, Commitment(digest=public.digest, commitment=_commit(party.me, words))
        )
        commitments = {
            peer: await receive_bound(
                party, Commitment, sender=peer, public=public, due=first_round
            )
            for peer in party.peers
        }
        party.round(first_round + 1)
        await broadcast(party, CheckWords(digest=public.digest, words=words))
        for peer, promised in commitments.items():
            message = await receive_bound(
                party, CheckWords, sender=peer, public=public, due=first_round + 1
            )
            if _commit(peer, message.words) != promised.commitment:
                party.accuse(ProtocolViolation(peer, "sent other words than it had committed to"))
            total += np.frombuffer(message.words, "<u8")
        return not total.any()


def checks_cost(parties: int) -> Forecast:
    """Forecast the exchange of the checks' outcome: two rounds of n(n - 1) messages.

    Args:
        parties: The number of parties, n.
    """
    digest = bytes(DIGEST_BYTES)
    each = parties * (parties - 1)
    sent = repeated(each, Commitment(digest=digest, commitment=digest))
    opened = repeated(each, CheckWords(digest=digest, words=bytes(CHECK_BYTES)))
    return Forecast(CHECK_ROUNDS, sent.plus(opened))


def _commit(sender: str, words: bytes) -> bytes:
    return digest_of(sender.encode(), words)
