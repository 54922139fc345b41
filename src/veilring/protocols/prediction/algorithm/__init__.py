"""The mathematics of private prediction, without input or output, clocks and parties.

`features` converts rows to directions, `kernels` finds the neighbours of a query, `filter` computes
the vote and payment of each neighbour, and `predictor` answers a stream of queries.
"""
