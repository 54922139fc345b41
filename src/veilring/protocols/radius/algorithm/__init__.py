"""The mathematics of the radius family: pure vectorised functions, no input or output, no clock.

`balls` says which rows and which other balls a ball meets. `allocation` bounds how many balls share
a row, and so what each query may spend. `voting` draws labels within given radii: a batch at once
(private r-N), or one query after another. `conversion` turns k into radii, and `nearest` puts it to
use (private k-N).
"""
