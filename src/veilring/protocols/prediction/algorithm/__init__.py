"""The mathematics of private prediction, without I/O, clocks or parties.

`features` converts rows into directions, `kernels` finds the neighbours of a query, `filter`
computes the votes and payments of neighbours, and `predictor` answers a stream of queries.
"""
