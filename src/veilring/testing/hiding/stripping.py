"""Removal of pairwise masks that a coalition's members know from masked words."""

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from veilring.protocols.masks import (
    KEY_BYTES,
    MaskedWords,
    MaskKey,
    PairwiseKeys,
    Words,
    derive_secret,
)
from veilring.testing.hiding.worlds import MemberView


def strip_masks(views: Mapping[str, MemberView]) -> dict[str, Words]:
    """Return each honest party's masked words minus the masks that it shares with members.

    Use it for roles that draw their key first, as `masked_sum` does: pass it to `assert_hides` as
    `strip`.
    """
    secrets: dict[str, dict[str, bytes]] = {}
    for member, view in views.items():
        private = X25519PrivateKey.from_private_bytes(view.coins().bytes(KEY_BYTES))
        for seen in view.received:
            if isinstance(seen.message, MaskKey) and seen.sender not in views:
                ends = (member, private), (seen.sender, seen.message.public)
                keys = secrets.setdefault(seen.sender, {})
                keys[member] = derive_secret(view.session, *ends)
    return {name: words for party in secrets for name, words in _strip(views, party, secrets)}


def _strip(
    views: Mapping[str, MemberView], party: str, secrets: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, Words]]:
    """Return the stripped words of one honest party, as seen by the first member that has them."""
    keys = PairwiseKeys(party, secrets[party])
    for view in views.values():
        masked = [
            seen.message
            for seen in view.received
            if seen.sender == party and isinstance(seen.message, MaskedWords)
        ]
        if masked:
            break
    stripped = []
    for number, message in enumerate(masked, start=1):
        masks = keys.mask([np.zeros_like(array) for array in message.words], message.digest)
        for place, (array, mask) in enumerate(zip(message.words, masks, strict=True)):
            name = f"words[{place}] number {number} of {party}"
            stripped.append((name, np.subtract(array, mask)))
    return stripped
