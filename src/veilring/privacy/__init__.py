"""Noise with an exactly known law, and what it costs: the ground that private answers stand on.

Mechanisms release whole numbers, or values on a public grid, drawn from laws whose probabilities
are known exactly; never a value plus float noise, whose low bits give the value away (Mironov,
CCS 2012). The generator is always an argument.

One family differs. Private prediction accounts by Gaussian DP, which holds for Gaussian noise
alone, and draws it as floats. Its answers are labels, and the sums that it releases are whole
numbers before the noise and rounded to whole numbers after it, so that no low bits leave.
"""
