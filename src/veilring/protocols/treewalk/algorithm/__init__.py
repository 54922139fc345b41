"""The mathematics of the tree walk: pure vectorised functions without I/O or clock.

`tree` has the server's data structure, `walks` the private steps down that tree and their privacy
accounting, and `one_message` the mechanisms with a single message: bucket responses and blurred
queries.
"""
