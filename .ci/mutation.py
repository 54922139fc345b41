"""Measure which share of small changes of `veilring.privacy` its own tests notice.

mutmut changes an operator, a number, a word or an argument at a time, and runs the tests that reach
the changed function. All changes take more than an hour, so a random sample is tested.

    python .ci/mutation.py                                print the recorded share
    python .ci/mutation.py --sample 300                   measure and record it; list what passed
    python .ci/mutation.py --sample 300 --only '*bounds*'  measure it for the changes of one module
"""

import argparse
import json
import math
import random
import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / ".ci" / "mutation.json"
NOTICED = {"killed", "timeout", "segfault"}  # a change that hangs or crashes is noticed, too
NOTHING = "nothing"  # no change has this name


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, help="the number of changes that are tested")
    parser.add_argument("--seed", type=int, help="of the sample; by default, today's date")
    parser.add_argument("--only", default="*", help="a pattern of the names of changes")
    given = parser.parse_args()
    if given.sample is None:
        print(summary(json.loads(RECORD.read_text(encoding="utf-8"))))
        return
    today = datetime.now(UTC).date()
    seed = int(f"{today:%Y%m%d}") if given.seed is None else given.seed
    population = [name for name in prepare() if fnmatchcase(name, given.only)]
    results = check(draw(population, given.sample, seed))
    passed = sorted(name for name, status in results.items() if status not in NOTICED)
    print(*(f"{name}: {results[name]}" for name in passed), sep="\n")
    found = {
        "date": f"{today}",
        "commit": commit(),
        "seed": seed,
        **score(results, len(population)),
    }
    print(summary(found))
    if given.only == "*":
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def prepare() -> list[str]:
    """Make all changes, find the tests that reach each function, and return the changes' names."""
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)  # one that was interrupted lacks tests
    # It fails because nothing remains to be tested, after having done the rest.
    subprocess.run(["mutmut", "run", NOTHING], cwd=ROOT, check=False, capture_output=True)
    return list(statuses())


def draw(population: list[str], size: int, seed: int) -> list[str]:
    """Return a random sample without repetition, or all if there are no more than `size`."""
    chance = random.Random(seed)  # noqa: S311  (a sample is no secret, and has a seed)
    return chance.sample(sorted(population), min(size, len(population)))


def check(names: list[str]) -> dict[str, str]:
    """Test each change, and return its status."""
    subprocess.run(["mutmut", "run", *names], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found = statuses()
    return {name: found[name] for name in names}


def statuses() -> dict[str, str]:
    """Return the status of each change."""
    listing = ["mutmut", "results", "--all", "true"]
    lines = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return dict(line.strip().split(": ") for line in lines.splitlines() if ": " in line)


def commit() -> str:
    """Return the commit that is checked out."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        asked, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def score(results: dict[str, str], population: int) -> dict[str, object]:
    """Count the results, in all and for each module."""
    sampled = Counter(name.split(".")[2] for name in results)
    noticed = Counter(name.split(".")[2] for name in results if results[name] in NOTICED)
    return {
        "changes": population,
        "sampled": sampled.total(),
        "noticed": noticed.total(),
        "modules": {
            module: {"sampled": sampled[module], "noticed": noticed[module]}
            for module in sorted(sampled)
        },
    }


def standard_error(noticed: int, sampled: int, population: int) -> float:
    """Return the standard error of the share of a sample that was drawn without repetition.

    Cochran, Sampling Techniques (1977), theorem 3.4.
    """
    share, rest = noticed / sampled, 1 - sampled / population
    return math.sqrt(rest * share * (1 - share) / max(sampled - 1, 1))


def summary(found: dict[str, object]) -> str:
    """Return the score in one line."""
    noticed, sampled, population = (
        int(f"{found[key]}") for key in ("noticed", "sampled", "changes")
    )
    error = standard_error(noticed, sampled, population)
    return (
        f"mutation score of veilring.privacy: {noticed / sampled:.1%}, standard error {error:.1%} "
        f"({noticed} of {sampled} changes, drawn from {population:,} on {found['date']})"
    )


if __name__ == "__main__":
    main()
