"""Private nearest-neighbour look-ups: a client hides its query from a server of public points.

Source: "Differentially private tree-based nearest neighbours", a thesis whose algorithms and
figures are cited by their numbers.
"""
