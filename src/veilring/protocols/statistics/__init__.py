"""Statistics among peers: one masked sum of each party's tallies, exact or with noise.

A statistic is a tally of whole numbers, which each party takes of its own rows, and an estimate
from the total. A plan has several of them, which share its sums and its budget.
"""
