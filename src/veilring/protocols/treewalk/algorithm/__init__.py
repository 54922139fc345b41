"""The mathematics of the tree walk: pure vectorised functions without I/O or clock.

`tree` has the server's data structure, and `mechanisms` the two ways to name one of its buckets.
"""
