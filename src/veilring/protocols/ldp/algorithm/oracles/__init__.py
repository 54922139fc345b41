"""Frequency oracles: estimates of how many clients hold each value of a domain."""
