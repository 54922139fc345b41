"""Actors: nodes, sessions, rings, and clusters of tasks or processes."""
