"""Time of a batch of queries if each message takes 50 ms: simulated, and by the formula."""

from veilring import load_scenario, run_scenario

LATENCY = 0.05
SETUP_STEPS = 3  # queries, commitments, reveals


def main() -> None:
    """Print a line for each number of parties, of rounds, and way of adding votes."""
    print("parties  PP-TopK  sum      messages   bytes    rounds  formula  simulated")
    for parties in (8, 32):
        for turns in (2, 8):
            for method, cycles in (("ring", 1), ("cycles", 2), ("shares", 1)):
                scenario = load_scenario(
                    "wine",
                    [
                        f"parties.count={parties}",
                        f"protocol.rounds={turns}",
                        f"protocol.sum={method}",
                        f"protocol.cycles={cycles}",
                        f"network.latency={{ distribution = 'constant', seconds = {LATENCY} }}",
                        "run.leakage_trials=0",
                    ],
                )
                report = run_scenario(scenario, runtime="simulated", seed=7)
                cost = report.cost
                formula = (report.forecast.rounds + SETUP_STEPS) * LATENCY
                print(
                    f"{parties:7}  {turns:7}  {method:7}{cost.messages:9,}{cost.bytes:10,}"
                    f"{cost.rounds:8}{formula:9.2f}{report.simulated_seconds:11.2f}"
                )


if __name__ == "__main__":
    main()
