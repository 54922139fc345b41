"""The mathematics of private prediction, without I/O, clocks or parties.

`directions` converts rows into directions and finds the neighbours of a query, `filter` computes
the votes and payments of neighbours, and `predictor` answers a stream of queries.

Unless they are only now quantised, rows and queries are results of `quantise`, shape
(rows, features). Rows, labels, remaining units and the generators of noise are secret.
"""
