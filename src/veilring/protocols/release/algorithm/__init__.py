"""The mathematics of the release family: pure vectorised functions, no I/O, no asyncio.

`statistic` says what is added up: whole numbers a row, with an integer-checked bound. `columns`
maps rows by their public schema. `directions` has the sums of directions (class means, linear
discriminant, and the centre and the moments that are released before them), `tallies` the counts
(naive Bayes, labelled grid, random trees). `decoders` turns a noisy sum into one of the
`classifiers`. `rule` chooses a statistic from public numbers alone. `laws` is the noise of each
sum, what it costs and what it needs.
"""
