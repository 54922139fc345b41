"""Exploring faults: many seeds, each a schedule, checked for wrong results and for hangs."""

from veilring.scenarios.exploring.campaign import Campaign, explore
from veilring.scenarios.exploring.seed import Explored, Subject, explore_seed

__all__ = ("Campaign", "Explored", "Subject", "explore", "explore_seed")
