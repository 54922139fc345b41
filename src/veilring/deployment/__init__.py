"""Deployed parties on their own machines: shared terms, configurations, and servers.

Two files are public and equal for all parties: the roster lists the members with their keys, and
the terms define the protocol and the schema. Two files are private to each party: its key and its
rows. A configuration names these files and the party's role.

Each system has a module with its terms, the configurations of its roles and their coroutines:
`peers`, `statistics`, `owner`, `prediction` and `places`; `surveys` is the room of the two systems
that ask people. `examples` writes the files of a trial. A process imports only the modules of its
own system.
"""

from veilring.deployment.config import Columns, Config, Duty, Unfinished
from veilring.deployment.duties import (
    ROLES,
    ask,
    back_up_state,
    begin_state,
    load_config,
    load_config_of,
    perform,
    serve,
)

__all__ = (
    "ROLES",
    "Columns",
    "Config",
    "Duty",
    "Unfinished",
    "ask",
    "back_up_state",
    "begin_state",
    "load_config",
    "load_config_of",
    "perform",
    "serve",
)
