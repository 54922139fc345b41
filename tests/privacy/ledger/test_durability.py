"""The durability of a ledger: kills at any moment, and concurrent writers."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.privacy.ledger.charging import AMOUNT, IDS, PLENTY, numbered

from veilring.errors import InputError
from veilring.privacy.ledger import Ledger, open_ledger, read_totals

# Each round takes a third of a second; VEILRING_KILLS=100 is a good night's sleep.
ROUNDS = int(os.environ.get("VEILRING_KILLS", "6"))
PROGRAM = Path(__file__).with_name("charging.py")
ROOT = Path(__file__).parents[3]


@contextmanager
def _charging(path: Path, first: int, *more: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a process that charges, and kill it at the end of the block."""
    command = [sys.executable, str(PROGRAM), str(path), str(first), *more]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
            process.wait()


def _answers(lines: list[str]) -> dict[int, bytes]:
    """Read a process's output, without a line that was cut off."""
    whole = (line.split() for line in lines if line.endswith("\n"))
    return {int(number): bytes.fromhex(answer) for number, answer in whole}


def _require_kept(ledger: Ledger, given: dict[int, bytes], doubtful: int) -> int:
    """Check that each given answer was charged exactly once; return the number of answers."""
    count = ledger.totals().answers
    assert count - len(given) in range(doubtful + 1)
    slots = ledger.records.add(IDS)
    for number, answer in given.items():
        assert ledger.charge(numbered(number, b"another")) == answer
    spent = np.zeros(len(IDS), np.int64)
    for number in range(count):
        records = numbered(number, b"").records
        assert records is not None
        np.add.at(spent, slots[records.slots], records.units)
    totals = ledger.totals()
    assert totals.answers == count
    assert totals.spent == pytest.approx(count * AMOUNT)
    np.testing.assert_array_equal(ledger.records.remaining(), 100 * 10**12 - spent)
    return count


@pytest.mark.slow
def test_kill_minus_nine_at_random_loses_no_given_answer(tmp_path: Path) -> None:
    """After each restart, each given answer is charged once and is repeated at no cost."""
    path, chance = tmp_path / "ledger", random.Random(1)
    given: dict[int, bytes] = {}
    count = 0
    for doubtful in range(1, ROUNDS + 1):
        with _charging(path, count) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randrange(8))]
            with pytest.raises(InputError, match="is locked"):
                open_ledger(path, PLENTY)
            time.sleep(chance.random() * 0.02)
            process.kill()
            lines += process.stdout.readlines()
        given |= _answers(lines)
        with open_ledger(path, PLENTY) as ledger:
            count = _require_kept(ledger, given, doubtful)


# A charge begins, looks whether it is alone, looks for the key, keeps the answer, writes the
# analyst's total and the journal, each of the three with two steps of its seal, keeps the seal, and
# commits.
_STATEMENTS = 14


@pytest.mark.parametrize("statement", range(_STATEMENTS + 1))
def test_a_charge_happened_if_and_only_if_it_was_committed(path: Path, statement: int) -> None:
    """Killed before any statement, a process has charged nothing; after the commit, one answer.

    That answer is stored and returned on retry.
    """
    with _charging(path, 0, str(statement)) as process:
        assert process.stdout is not None
        given = _answers(process.stdout.readlines())
        assert process.wait() == -9
    done = int(statement == _STATEMENTS)
    assert read_totals(path).answers == done  # there is no writer, and the log was never closed
    with open_ledger(path, PLENTY) as ledger:
        assert _require_kept(ledger, given, 0) == done


def test_a_second_process_is_refused_and_readers_are_not(path: Path) -> None:
    """A second writer fails with a clear error, while totals stay readable."""
    with open_ledger(path, PLENTY, new=True) as ledger:
        ledger.records.add(IDS)
        command = [sys.executable, str(PROGRAM), str(path), "0"]
        second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert second.returncode == 1
        assert f"{path} is locked" in second.stderr
        for number in range(5):
            ledger.charge(numbered(number, b"yes"))
            assert read_totals(path).answers == number + 1
        with pytest.raises(InputError, match="is locked"):
            open_ledger(path, PLENTY)
        ledger.charge(numbered(5, b"yes"))  # the refused ones did not take its lock away
    assert read_totals(path).answers == 6


def test_a_log_torn_anywhere_is_a_prefix_of_the_charges(tmp_path: Path) -> None:
    """Moved without its lock file, a ledger has only whole charges, wherever its log ends."""
    path, torn = tmp_path / "ledger", tmp_path / "torn"
    with open_ledger(path, PLENTY, new=True) as ledger:
        ledger.records.add(IDS)
        for number in range(6):
            ledger.charge(numbered(number, b"yes"))
        log = Path(f"{path}-wal").read_bytes()
        main = path.read_bytes()
    counts = []
    for length in (*range(1, len(log), len(log) // 30), len(log)):
        Path(f"{torn}.lock").unlink(missing_ok=True)
        torn.write_bytes(main)
        Path(f"{torn}-wal").write_bytes(log[:length])
        with open_ledger(torn, PLENTY) as ledger:
            counts.append(_require_kept(ledger, {}, 6))
    assert counts == sorted(counts)
    assert set(counts) == set(range(7))


def test_the_file_is_readable_by_its_owner_only(path: Path, tmp_path: Path) -> None:
    """The ledger, its log and its lock are readable by their owner only."""
    with open_ledger(path, PLENTY, new=True):
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes.pop("state.lock") == modes.pop("state") == 0o600
    assert set(modes.values()) == {0o600}
