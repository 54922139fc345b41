"""Parties, sessions, nodes, services, rings, and clusters of tasks or processes."""

from typing import Literal

RuntimeName = Literal["memory", "tls", "processes", "simulated"]
"""The name of a runtime. `processes` and `tls` use real sockets; the others do not."""
