"""The mathematics of the ring family: pure vectorised functions, no I/O, no asyncio.

`topk` is PP-TopK, `sums` the secure sums and the coalitions that expose inputs, `classify` the
classifier on top of both, and `consistency` the checks of honest behaviour.
"""
