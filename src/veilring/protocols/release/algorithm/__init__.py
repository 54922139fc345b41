"""The mathematics of the release family: pure vectorised functions, no I/O, no asyncio.

`statistic` defines a sum of whole numbers per row, with a bound checked in integers. `directions`
has the sums of directions (class means, linear discriminant, and the centre and the moments
released before them), `tallies` the counts (naive Bayes, labelled grid, random trees); each decodes
its noisy sum to one of the `classifiers`. `rule` chooses a statistic from public numbers alone.
`noise` computes the noise of each sum, its privacy cost and its requirements.
"""
