"""Success of a semi-honest coalition against PP-TopK, also when a query is repeated."""

import numpy as np

from veilring.protocols.ring import TopKParameters
from veilring.protocols.ring.attacks.posterior import Setting, attack_table
from veilring.protocols.ring.attacks.views import UniformPrior, tracing_success

ROWS = 100


def parameters(k: int, P0: float, d: float, rounds: int) -> TopKParameters:
    """Return parameters for values between 0 and 1."""
    return TopKParameters(k=k, P0=P0, d=d, rounds=rounds, delta=0.1, upper=1.0)


def settings() -> list[Setting]:
    """Return the grid, in which one setting varies at a time; victims start or sit halfway."""
    grid = [
        (8, 4, parameters(5, 1.0, 0.5, 1)),
        (8, 4, parameters(5, 1.0, 0.5, 2)),
        (8, 4, parameters(5, 1.0, 0.5, 4)),
        (8, 0, parameters(5, 1.0, 0.5, 4)),
        (8, 4, parameters(5, 1.0, 0.9, 4)),
        (8, 4, parameters(5, 0.5, 0.5, 4)),
        (8, 0, parameters(5, 0.5, 0.5, 4)),
        (8, 4, parameters(1, 1.0, 0.5, 4)),
        (8, 4, parameters(20, 1.0, 0.5, 4)),
        (3, 1, parameters(5, 1.0, 0.5, 4)),
        (30, 15, parameters(5, 1.0, 0.5, 4)),
    ]
    return [Setting(n, victim, public, UniformPrior(ROWS)) for n, victim, public in grid]


def single_sessions() -> None:
    """Print the accuracy and the gain of the simple and the optimal attack."""
    print(" n  victim  k   P0    d  r  coalition         new   accuracy          gain")
    print(f"{'':44}per run  simple  optimal   simple  optimal")
    rows = attack_table(settings(), trials=150, simulated=800, rng=np.random.default_rng(1))
    for row in rows:
        setting, public = row.setting, row.setting.parameters
        print(
            f"{setting.parties:2}  {setting.victim:6} {public.k:2}  {public.P0:.1f}  {public.d:.1f}"
            f"  {public.rounds}  {row.coalition:15} {row.simple.new:6.1f}"
            f"  {row.simple.accuracy:6.3f}  {row.optimal.accuracy:7.3f}"
            f"  {row.simple.gain:z7.2f}  {row.optimal.gain:z7.2f}"
        )


def over_repetitions() -> None:
    """Print how often the owner of a value is found, by the number of sessions."""
    print("coalition  P0   sessions: 1      2      4      8     16")
    for coalition, P0 in ((1, 0.0), (1, 0.5), (1, 1.0), (2, 1.0), (3, 1.0)):
        found = tracing_success(
            8,
            parameters(5, P0, 0.5, 4),
            UniformPrior(ROWS),
            coalition=coalition,
            sessions=16,
            batches=25,
            rng=np.random.default_rng(1),
        )
        shares = "".join(f"{found[number - 1]:7.3f}" for number in (1, 2, 4, 8, 16))
        print(f"{coalition:9}  {P0:.1f}       {shares}")


def retries() -> None:
    """Print how often the owner is found after a session that failed and its retry."""
    print("first session failed after round  owners found")
    for done in (1, 2, 3, 4):
        found = tracing_success(
            8,
            parameters(5, 1.0, 0.5, 4),
            UniformPrior(ROWS),
            coalition=2,
            sessions=2,
            batches=100,
            rng=np.random.default_rng(1),
            failed_after=8 * done,
        )
        print(f"{done:32}  {found[1]:12.3f}")


def main() -> None:
    """Print all three."""
    single_sessions()
    print()
    over_repetitions()
    print()
    retries()


if __name__ == "__main__":
    main()
