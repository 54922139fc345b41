"""Effect of one malicious party among five on the labels of a data set, and its detection."""

from collections.abc import Iterator

from veilring import ProtocolViolation, RunFailed, Tampered, load_scenario, run_scenario

# Noise that is small compared with the distances between wines, and large noise.
DELTAS = (0.01, 0.1)
SEEDS = range(5)
ATTACKS = (
    "",
    "kind = 'substitute-input', label = 2",
    "kind = 'inflate-topk'",
    "kind = 'inflate-topk', entries = 5, first_round = 7",
    "kind = 'deflate-topk', factor = 0.5",
    "kind = 'replayer'",
    "kind = 'equivocate', victim = 'party-3'",
    "kind = 'wrong-sum', by = 1, entry = 0",
    "kind = 'wrong-sum', by = 6, entry = 2",
    "kind = 'wrong-sum', by = -6, entry = 2",
    "kind = 'take-over', by = 5, entry = 2",
)


def main() -> None:
    """Print a line for each attack: how many runs detected it, and the labels of the others."""
    head = "".join(f"{f'delta = {delta}':24}" for delta in DELTAS)
    print(f"{'party-1 is':52}{head.rstrip()}")
    for attack in ATTACKS:
        cells = "".join(f"{cell(attack, delta):24}" for delta in DELTAS)
        print(f"{attack or 'honest':52}{cells.rstrip()}")


def cell(attack: str, delta: float) -> str:
    """Return a cell of the table: the number of runs that detected it, and the right labels."""
    agreements = list(runs(attack, delta))
    found = len(SEEDS) - len(agreements)
    share = f"{sum(agreements) / len(agreements):.0%} right" if agreements else ""
    return ", ".join(filter(None, (f"{found} detected" if found else "", share)))


def runs(attack: str, delta: float) -> Iterator[float]:
    """Yield the share of labels that equal the pooled classifier's, for each undetected run."""
    overrides = ["parties.count=5", f"protocol.delta={delta}", "protocol.rounds=7"]
    if attack:
        overrides.append(f"adversaries.party-1={{ {attack} }}")
    scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
    for seed in SEEDS:
        try:
            yield run_scenario(scenario, runtime="memory", seed=seed).agreement
        except RunFailed as failed:
            if not isinstance(failed.root, Tampered | ProtocolViolation):
                raise


if __name__ == "__main__":
    main()
