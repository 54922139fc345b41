"""The mathematics of the radius family: pure vectorised functions without I/O or clock.

- `balls`: the rows in each ball, and the overlap of balls.
- `allocation`: bounds on the number of balls that share a row, and the ε of each query.
- `voting`: labels within given radii, for a batch (private r-N) or one query after another.
- `conversion`: radii from k, under a budget.
- `nearest`: labels by about k nearest rows (private k-N).
"""
