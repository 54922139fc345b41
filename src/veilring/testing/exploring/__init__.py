"""Fault exploration: many seeds, each a world with faults, checked for wrong results and hangs."""

from veilring.testing.exploring.campaign import (
    Campaign,
    Shrunk,
    every_world,
    explore,
    explore_every_world,
    explore_subject,
    shrink,
)
from veilring.testing.exploring.stores import (
    STORAGE_FAULTS,
    StoreSubject,
    explore_store,
    explore_stores,
)
from veilring.testing.exploring.subjects import (
    RoleSubject,
    SystemSubject,
    from_scenario,
    replay,
    to_scenario,
    to_toml,
)
from veilring.testing.exploring.worlds import Explored, Subject, World, draw_world, play_world

__all__ = (
    "STORAGE_FAULTS",
    "Campaign",
    "Explored",
    "RoleSubject",
    "Shrunk",
    "StoreSubject",
    "Subject",
    "SystemSubject",
    "World",
    "draw_world",
    "every_world",
    "explore",
    "explore_every_world",
    "explore_store",
    "explore_stores",
    "explore_subject",
    "from_scenario",
    "play_world",
    "replay",
    "shrink",
    "to_scenario",
    "to_toml",
)
