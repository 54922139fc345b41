"""Exploring faults: many seeds, each a world with faults, checked for wrong results and hangs."""

from veilring.testing.exploring.campaign import Campaign, explore, explore_subject
from veilring.testing.exploring.subjects import RoleSubject, SystemSubject
from veilring.testing.exploring.worlds import Explored, Subject, World, draw_world, play_world

__all__ = (
    "Campaign",
    "Explored",
    "RoleSubject",
    "Subject",
    "SystemSubject",
    "World",
    "draw_world",
    "explore",
    "explore_subject",
    "play_world",
)
