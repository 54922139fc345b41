"""The cost of veilring and its growth: `python -m benchmarks`.

The peers (`ring`, `hops`, `owner`, `prediction`, `ldp`, `collector`, `treewalk`, `sweep`, `flood`)
are compared with a reference in the same run. The studies (`growth_ring`, `growth_serve`,
`growth_collect`, `growth_records`) measure points up to what fits on one machine, and fit models
that extrapolate them. Both measure by `measurement`. `docs/benchmarks.md` and `docs/scale.md`
explain the meaning of each number.
"""
