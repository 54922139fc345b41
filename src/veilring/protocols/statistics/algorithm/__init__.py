"""The mathematics of statistics among peers: pure functions of columns, tallies and totals.

`columns` turns a party's table into whole numbers; `moments`, `counts`, `survival` and `quantiles`
have the statistics; and `suppression` hides small counts in the published tables.
"""
