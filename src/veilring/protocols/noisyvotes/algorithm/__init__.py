"""The mathematics of the noisyvotes family: pure vectorised functions, no I/O, no asyncio.

`parameters` is what all parties know, and how budgets are divided at worst; `releases` what a party
counts and adds, one release after another; and `guarantees` the epsilon that remains when shares of
the noise are missing or parties collude.
"""
