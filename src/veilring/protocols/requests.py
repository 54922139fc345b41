"""Requests that are charged once: each is named by its content."""

import hashlib
from typing import Annotated, Final

from pydantic import Field

KEY_BYTES: Final = 16  # as many as a UUID has: never drawn twice by chance

Key = Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]
"""Whoever asks calls a request by it. One that is sent again has the same key, gets the same
answer, and is charged once."""


def content_key(name: str, content: bytes) -> bytes:
    """Return the key that follows from a request's content.

    Args:
        name: Another name makes another key of the same content.
        content: All of the request but its key.
    """
    salt = hashlib.sha256(name.encode()).digest()
    return hashlib.sha256(salt + content).digest()[:KEY_BYTES]
