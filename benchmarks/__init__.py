"""The cost of veilring: `python -m benchmarks`.

Each benchmark is compared with a reference in the same run, by `measurement`. `defaults` and
`advice` study accuracy instead. `docs/benchmarks.md` explains the meaning of each number.
"""
