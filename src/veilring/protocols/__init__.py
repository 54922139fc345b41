"""The protocol families, each a folder with the same rooms.

`algorithm` is the mathematics, `messages` what crosses the wire, `roles` one coroutine a role,
`leakage` what a view gives away, `cost` the closed forms. Beside the folders stands what families
share: `rows`, `forecast`, and for requests that are paid for, `requests` and `verdicts`.
"""
