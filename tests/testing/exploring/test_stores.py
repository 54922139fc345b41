"""Stores on failing disks: real ones lose no acknowledged data, and mistakes are detected."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typing_extensions import override

from veilring.cli.app import app
from veilring.errors import StoreFailed
from veilring.testing.exploring import STORAGE_FAULTS, StoreSubject, explore_store, explore_stores
from veilring.testing.exploring.stores import STORES, StorageFault

_LINE = 8


@pytest.mark.parametrize("kind", STORAGE_FAULTS)
def test_acknowledged_data_exist_or_the_store_is_refused(kind: StorageFault) -> None:
    """A few worlds per store and fault are played; `veilring explore --stores` plays more."""
    for subject in STORES:
        for seed in range(3):
            assert explore_store(subject, seed, kind=kind).wrong == []


class Lines(StoreSubject[Path]):
    """A file with a line for each operation; subclasses make mistakes."""

    name = "lines"
    moment: Callable[[], None] | None = None

    @override
    def open(self, folder: Path) -> Path:
        path = folder / "lines"
        path.touch()
        if path.stat().st_size % _LINE:
            self.mend(path)
        return path

    def mend(self, path: Path) -> None:
        """Cut off a partly written line."""
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // _LINE * _LINE])

    @override
    def close(self, handle: Path) -> None:
        """Do nothing, since no file is open."""

    @override
    def watch(self, handle: Path, moment: Callable[[], None]) -> None:
        self.moment = moment

    @override
    def use(self, handle: Path, number: int) -> None:
        if self.moment is not None:
            self.moment()
        with handle.open("ab", buffering=0) as file:
            file.write(b"%07d\n" % number)

    @override
    def find_wrong(self, handle: Path, acknowledged: int) -> list[str]:
        lines = handle.read_bytes().splitlines()
        right = lines == [b"%07d" % number for number in range(len(lines))]
        if not right or len(lines) - acknowledged not in range(2):
            return [f"{len(lines)} lines for {acknowledged} operations"]
        return []


class Refused(Lines):
    """A store that cannot continue after a partly written line."""

    @override
    def mend(self, path: Path) -> None:
        raise StoreFailed("a line is damaged")


class Late(Lines):
    """A store that acknowledges before it writes."""

    _held = b""

    @override
    def use(self, handle: Path, number: int) -> None:
        if self.moment is not None:
            self.moment()
        with handle.open("ab", buffering=0) as file:
            file.write(self._held)
        self._held = b"%07d\n" % number


def wrong(subject: StoreSubject[Path], kind: StorageFault) -> set[str]:
    """Return the findings of some worlds of a class."""
    worlds = (explore_store(subject, seed, kind=kind) for seed in range(30))
    return {sentence.rpartition(": ")[2] for world in worlds for sentence in world.wrong}


def test_a_plain_file_survives_crashes_only() -> None:
    """A crash and a torn line lose nothing, but an old copy and a flipped bit do."""
    assert wrong(Lines(), "kill") == set()
    assert wrong(Lines(), "torn write") == set()
    assert wrong(Lines(), "lost sync") != set()
    assert wrong(Lines(), "bit flip") != set()


def test_stores_with_a_mistake_are_detected() -> None:
    """One acknowledges too early, and one is ended permanently by a full disk."""
    assert wrong(Late(), "kill") != set()
    assert "a line is damaged" in wrong(Refused(), "full disk")


def test_a_campaign_over_stores_reaches_all_classes() -> None:
    """The stores take turns, and the command lists the faults."""
    campaign = explore_stores([Refused()], range(40))
    assert campaign.missing == ()
    assert campaign.smallest() is None
    shown = CliRunner().invoke(app, ["explore", "--stores", "--seeds", "1"])
    assert shown.exit_code == 1
    assert "these classes of fault never struck" in shown.output
