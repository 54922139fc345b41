"""The mathematics of private prediction, without input or output, clocks and parties.

`features` makes directions of rows, `kernels` finds the neighbours of a query, `filter` says what
each neighbour votes and pays, and `predictor` answers a stream of queries.
"""
