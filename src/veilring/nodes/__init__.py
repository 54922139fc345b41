"""Parties, sessions, nodes, services, rings, and clusters of tasks or processes."""
