"""The mathematics of the noisyvotes family: pure vectorised functions, no I/O, no asyncio.

`parameters` contains the public parameters and the worst-case division of budgets; `releases` the
counts and noise of a party, one release after another; and `guarantees` the epsilon that remains if
noise shares are missing or parties collude.
"""
