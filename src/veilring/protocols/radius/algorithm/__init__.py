"""The mathematics of the radius family: pure vectorised functions without I/O or clock.

- `balls`: the rows in each ball, and the overlap of balls.
- `allocation`: bounds on the number of balls that share a row, and the ε of each query.
- `conversion`: radii from k, under a budget.
- `nearest`: labels within given radii (private r-N), or by about k nearest rows (private k-N).

Queries have the shape (Q, f), with f features in [0, 1]; radii have the shape (Q,), and are finite
and at least 0. Budgets are above 0; k, the number of neighbours, is at least 1. Tables of rows and
the generators of noise are secret.
"""
