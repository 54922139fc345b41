"""What veilring costs, beside a reference that is measured in the same run: `python -m benchmarks`.

Every module here that has `measure(*, quick)` is one benchmark; `docs/benchmarks.md` says what each
number means.
"""
