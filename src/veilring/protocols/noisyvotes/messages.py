"""What crosses the wire in the noisyvotes family, beside the secure sums of the ring's."""

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veilring.transport.messages import Array, Matrix, Message

DIGEST_BYTES: Final = 32  # SHA-256


class VotesBatch(Message, kind="noisyvotes.batch"):
    """A batch of queries, from whoever asks to all. It is public to the parties.

    Attributes:
        queries: Shape (queries, features), in [0, 1].
        radii: Shape (queries,); empty if the parameters say which rows vote.
    """

    queries: Matrix
    radii: Annotated[NDArray[np.float64], Array("<f8", 1)]


class PublicDigest(Message, kind="noisyvotes.agreed"):
    """A hash of all that was public so far, from each to all, before a sum begins."""

    digest: Annotated[bytes, Field(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
