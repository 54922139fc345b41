"""The mathematics of the release family: pure vectorised functions, no I/O, no asyncio.

`laws` is the noise of each sum, what it costs and what it needs.
"""
