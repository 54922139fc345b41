"""The protocol families, one folder each, with the same modules.

`algorithm` contains pure functions, `messages` the formats on the wire, `roles` one coroutine for
each role, `leakage` estimates of what a view reveals, and `cost` the closed forms. Code shared by
several families is next to the folders.
"""
