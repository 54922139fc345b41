"""The mathematics of rank search, independent of parties, clocks and networks."""
