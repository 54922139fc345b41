"""The mathematics of the ring family: pure vectorised functions, no I/O, no asyncio.

`topk` is PP-TopK, `sums` the secure sum and whom a coalition exposes in it, `classify` the
classifier on top of both, and `consistency` what honest parties cannot have sent.
"""
