"""Noise with an exactly known distribution, accounting of its cost, and ledgers of budgets.

Mechanisms release whole numbers, or values on a public grid, drawn from distributions whose
probabilities are known exactly; never a value plus float noise, whose low bits reveal the value
(Mironov, CCS 2012). The generator is always an argument.

One family differs. Private prediction uses Gaussian DP accounting, which holds only for Gaussian
noise, and draws the noise as floats. Its answers are labels, and the sums that it releases are
whole numbers before the noise and rounded to whole numbers after it, so no low bits are released.
"""
