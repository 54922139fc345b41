"""The page on scaling shows the output of its commands, exactly if simulated."""

import csv
import re
from pathlib import Path

import pytest
from benchmarks.growth_ring import Batch, load_network, simulate
from docs.scale.refresh import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
JITTERY = Batch(network=load_network(DOCS / "scale" / "wan.toml"))


@pytest.mark.parametrize(
    ("folder", "batch"), [(".", Batch()), ("jitter", JITTERY)], ids=["plain", "jitter"]
)
def test_simulated_points_of_the_page_are_current(folder: str, batch: Batch) -> None:
    """The two smallest points of each curve still have the same seconds, messages and bytes."""
    with (DOCS / "scale" / folder / "scale-ring.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["curve"], int(row["x"]), row["y is"]): float(row["y"]) for row in rows}
    for parties in (9, 32):
        run = simulate(batch, parties)
        for what, value in (
            ("simulated seconds per batch", run.seconds),
            ("messages", run.cost.messages),
            ("bytes", run.cost.bytes),
        ):
            assert found["one ring", parties, what] == value


def test_every_file_of_the_page_is_refreshed_by_the_script() -> None:
    """Each file that the page includes is the output of the command beside it."""
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    included = re.findall(r"\{(?:literalinclude|image)\} (\S+)", page)
    assert len(included) == 9
    for path in included:
        folder, name = Path(path).parent.name, Path(path).stem.removeprefix("scale-")
        command = COMMANDS["jitter" if folder == "jitter" else name]
        assert (DOCS / path).is_file()
        assert (
            f"python -m benchmarks scale {' '.join(command)}".replace(f"{DOCS.parent}/", "") in page
        )
