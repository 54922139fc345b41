"""A process in a library's own environment: it knows nothing of veilring.

Usage: python ldp_library.py LIBRARY

Each line of input is a JSON object with `oracle`, `domain`, `epsilon` and `clients`; each line of
output the seconds from the clients' values to estimates.
"""

import json
import random
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

Work = Callable[[list[int]], None]


def pure_ldp(oracle: str, domain: int, epsilon: float) -> Work:
    """Return what perturbs and estimates with `pure-ldp`."""
    library = import_module("pure_ldp.frequency_oracles")
    hadamard = import_module("pure_ldp.frequency_oracles.hadamard_response")

    def pair() -> tuple[Any, Any]:
        if oracle == "hr":
            server = hadamard.HadamardResponseServer(epsilon, domain)
            return hadamard.HadamardResponseClient(epsilon, domain, server.get_hash_funcs()), server
        kind, options = {
            "de": ("DE", {}),
            "oue": ("UE", {"use_oue": True}),
            "olh": ("LH", {"use_olh": True}),
        }[oracle]
        sides = (getattr(library, kind + side) for side in ("Client", "Server"))
        client, server = (side(epsilon, domain, **options) for side in sides)
        return client, server

    def work(values: list[int]) -> None:
        client, server = pair()
        # It numbers values from 1.
        server.aggregate_all([client.privatise(value + 1) for value in values])
        server.estimate_all(range(1, domain + 1), suppress_warnings=True)

    return work


def multi_freq_ldpy(oracle: str, domain: int, epsilon: float) -> Work:
    """Return what perturbs and estimates with `multi-freq-ldpy`."""
    kind = {"de": "GRR", "oue": "UE", "olh": "LH"}[oracle]
    module = import_module(f"multi_freq_ldpy.pure_frequency_oracles.{kind}")
    client, estimate = getattr(module, f"{kind}_Client"), getattr(module, f"{kind}_Aggregator_MI")
    # The vectors of unary encoding say how long they are.
    options = (epsilon,) if oracle == "oue" else (domain, epsilon)

    def work(values: list[int]) -> None:
        estimate([client(value, domain, epsilon) for value in values], *options)

    return work


def main() -> None:
    """Answer until the input ends."""
    make = {"pure-ldp": pure_ldp, "multi-freq-ldpy": multi_freq_ldpy}[sys.argv[1]]
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        asked = json.loads(line)
        work = make(asked["oracle"], asked["domain"], asked["epsilon"])
        values = random.choices(range(asked["domain"]), k=asked["clients"])  # noqa: S311  (a benchmark's)
        start = time.perf_counter()
        work(values)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
