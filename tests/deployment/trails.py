"""Trails for tests: of parties that were deployed, and small ones with a clock of their own."""

import datetime as dt
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from veilring.deployment.gate import open_admission
from veilring.deployment.policy import Policy, Request
from veilring.deployment.trail import Trail, Verified, is_state, read_trail, verify_trail
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import LEDGER, open_ledger
from veilring.privacy.statefile import StateFile, open_state_file
from veilring.protocols.admission import Asked
from veilring.transport.roster import Identity, Member, Roster, load_identity, make_identity

NOON: Final = dt.datetime(2026, 11, 28, 12, 0, tzinfo=dt.UTC)
NAME: Final = "ada"


class Keeper:
    """A party that keeps a trail: the part of a server that it needs."""

    def __init__(self, identity: Identity | None = None, name: str = NAME) -> None:
        self.name, self.identity, self.now = name, identity or make_identity(name), NOON
        self.roster = roster_of(self.identity)

    def clock(self) -> dt.datetime:
        """Return the time."""
        return self.now

    def renew(self) -> Identity:
        """Give it another key, with a roster that accepts the one before, and return the key."""
        before, self.identity = roster_of(self.identity), make_identity(NAME)
        today = self.now.date()
        self.roster = roster_of(self.identity).replacing(before, today, today)
        return self.identity

    @contextmanager
    def open(self, path: Path) -> Iterator[tuple[Trail, StateFile]]:
        """Open the trail in a state file, which is created if it does not exist."""
        with closing(open_state_file(path, LEDGER, new=not path.exists())) as file:
            server: Any = self
            yield Trail(file, server, bytes(32)), file


def roster_of(identity: Identity) -> Roster:
    """Return a roster with one party."""
    return Roster((Member.of(identity, "127.0.0.1", 7311),))


def verified(path: Path, *rosters: Roster, earlier: Sequence[str] = ()) -> Verified:
    """Verify the trail of a state file, or an export."""
    with read_trail(path) as lines:
        return verify_trail(lines, rosters, is_export=not is_state(path), earlier=earlier)


def entries_of(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a trail."""
    with read_trail(path) as lines:
        return [json.loads(line) for line in lines]


def answer_requests(folder: Path, _words: tuple[str, ...], output: Path) -> None:
    """Answer requests for ever, entered with the charge or after it, and tell each one's name."""
    keeper = Keeper(load_identity(folder / f"{NAME}.key"))
    server: Any = keeper
    with keeper.open(folder / "ada.db") as (trail, file), open_ledger(file, Budgets()) as ledger:
        terms, log = Request("", "noisy-votes", epsilon=0.5), logging.getLogger(NAME)
        admission = open_admission(server, Policy(), terms, log, file=file, trail=trail)
        with output.open("a", buffering=1) as told:
            for number in count(ledger.totals().answers + 1):
                key, answer = str(number), number.to_bytes(8)
                charge = Charge("clerk", key, b"", answer, 0.5)
                with admission(Asked("clerk", 1, request=key.encode())) as admitted:
                    known = answer if number % 2 else None
                    ledger.charge(charge, partial(admitted.count, answer=known))
                    admitted.answer(answer)
                told.write(f"{trail.name_request(key.encode())}\n")
