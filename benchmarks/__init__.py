"""What veilring costs, and how it grows: `python -m benchmarks`.

The peers (`ring`, `hops`, `owner`, `prediction`, `ldp`, `collector`, `treewalk`, `sweep`, `flood`)
are measured beside a reference in the same run. The studies (`growth_ring`, `growth_serve`,
`growth_collect`, `growth_records`) measure points up to what fits on one machine, and fit models
that extrapolate them. Both measure by `measurement`. `docs/benchmarks.md` and `docs/scale.md` say
what each number means.
"""
