"""The mathematics of the LDP family: pure vectorised functions and frozen descriptions."""
