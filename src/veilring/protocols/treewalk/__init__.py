"""A client that hides its query: private walks down a server's tree of public points.

Source: "Differentially private tree-based nearest neighbours", a thesis whose algorithms and
figures are cited by their numbers.
"""
