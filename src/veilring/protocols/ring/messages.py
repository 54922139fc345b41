"""The messages of the ring family. Shapes are (runs, entries)."""

from typing import Annotated

from pydantic import Field

from veilring.transport.messages import Matrix, Message, WordMatrix

_Ordinal = Annotated[int, Field(ge=1)]


class TopKVector(Message, kind="ring.topk.vector"):
    """The global vector on its way to the successor (PP-TopK, Algorithm 2)."""

    round: _Ordinal
    values: Matrix


class TopKResult(Message, kind="ring.topk.result"):
    """The global vector after the last round, from the starter to all."""

    values: Matrix


class SumPart(Message, kind="ring.sum.part"):
    """A masked running sum on its way along one cycle (secure sum, Algorithm 3)."""

    cycle: _Ordinal
    values: WordMatrix


class SumTotal(Message, kind="ring.sum.total"):
    """The unmasked sum, from the starter to all."""

    values: WordMatrix


class SumShare(Message, kind="ring.sum.share"):
    """A uniformly random additive share of one party's input, from each party to each other."""

    values: WordMatrix


class SumPartial(Message, kind="ring.sum.partial"):
    """The sum of the shares that one party received, from each party to all."""

    values: WordMatrix
