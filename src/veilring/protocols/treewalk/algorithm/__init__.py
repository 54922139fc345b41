"""The mathematics of the tree walk: pure vectorised functions and frozen descriptions."""
