"""The mathematics of the tree walk: pure vectorised functions, no input or output, no clock.

`tree` is what the server holds. `walks` has the private steps down that tree, and what they spend.
`one_message` has what takes a single message instead: bucket responses and blurred queries.
"""
