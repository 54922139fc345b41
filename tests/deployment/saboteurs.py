"""Commands of parties that fall silent once a session is open."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.deployment import commands

from veilring.deployment import connecting
from veilring.nodes import node
from veilring.nodes.adversary import Silent, corrupt
from veilring.nodes.node import Node
from veilring.nodes.party import Party, Standing
from veilring.nodes.service import Offer, Service
from veilring.nodes.session import StandingReport, encode_standing
from veilring.protocols.ldp import messages
from veilring.protocols.noisyvotes import roles as votes_roles
from veilring.protocols.registry import BUILT_IN, find_system
from veilring.protocols.ring import system as ring_system
from veilring.transport import connection, handshake

LATER_VERSION: Final = handshake.PROTOCOL_VERSION + 1
_log = logging.getLogger("veilring.saboteur")


async def _say_nothing(_party: Party, opener: str) -> None:
    """Join a session and never send a message."""
    _log.warning("a session with %s", opener)
    await asyncio.Event().wait()


class _SilentService(Service):
    """A service that joins each session and sends nothing."""

    def __init__(self, node: Node, offers: Mapping[str, Offer]) -> None:
        silent = {name: replace(offer, play=_say_nothing) for name, offer in offers.items()}
        super().__init__(node, silent)


def run_silently(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, and fall silent: members from round 1 on."""
    for module, role in ((ring_system, "private_knn"), (votes_roles, "private_votes")):
        setattr(module, role, corrupt(getattr(module, role), Silent()))
    vars(connecting)["Service"] = _SilentService
    commands.run(folder, words, output)


def _lie(standing: Standing | None) -> StandingReport:
    """Claim that the first message of the session is missing, and that party-1 owes it."""
    lie = {"known": True, "senders": ("party-1",), "kinds": ("x.y",), "dues": (0,)}
    return encode_standing(standing).model_copy(update=lie)


def run_lying(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `run_silently`, and blame party-1 when asked."""
    vars(node)["encode_standing"] = _lie
    run_silently(folder, words, output)


def run_later_version(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, with the greeting of a later version."""
    for module in (connection, handshake):
        module.__dict__["PROTOCOL_VERSION"] = LATER_VERSION
    commands.run(folder, words, output)


def run_later_messages(folder: Path, words: tuple[str, ...], output: Path) -> None:
    """Run a command like `commands.run`, as if the messages of all systems had changed."""
    messages.__dict__["REPORTS_FORMAT"] += 1
    for name in BUILT_IN:
        find_system(name).messages_format += 1
    commands.run(folder, words, output)
