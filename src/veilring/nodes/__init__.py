"""Actors: nodes, sessions, rings, and clusters of tasks or processes."""

from veilring.nodes.adversary import Adversary
from veilring.nodes.cluster import Cluster
from veilring.nodes.node import Node
from veilring.nodes.party import Parties, Party, broadcast
from veilring.nodes.ring import Ring, deal_ring, draw_ring
from veilring.nodes.run import Run
from veilring.nodes.service import Offer, Service, opening

__all__ = (
    "Adversary",
    "Cluster",
    "Node",
    "Offer",
    "Parties",
    "Party",
    "Ring",
    "Run",
    "Service",
    "broadcast",
    "deal_ring",
    "draw_ring",
    "opening",
)
