"""The mathematics of the tree walk: pure vectorised functions without I/O or clock.

`tree` has the server's data structure, and `mechanisms` the two ways to name one of its buckets.

N points in some dimensions have a tree of depth L; look-ups stop s levels above its leaves, at a
bucket of up to 2**s points. Queries have the shape (queries, dimensions). They and the generators
of their noise are secrets of clients.
"""
