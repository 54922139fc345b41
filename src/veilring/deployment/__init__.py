"""Parties on machines of their own: what they agree on, how each is configured, and how it runs.

Two files are the same everywhere and public: the roster says who takes part by which key, and the
terms say what is run on which schema. Two are each party's own: its key and its rows. A
configuration names these files and the party's role.

Each system has a module with its terms, the configurations of its roles and their coroutines:
`peers`, `votes`, `owner`, `prediction`, `survey` (with `survey_client` and
`estimating`) and `places`.
A process imports only the modules of the role that it has.
"""

from veilring.deployment.config import Columns, Config, Unfinished
from veilring.deployment.roles import (
    ROLES,
    DeployedRole,
    ask,
    ask_near,
    fetch_model,
    load_config,
    load_config_of,
    serve,
)

__all__ = (
    "ROLES",
    "Columns",
    "Config",
    "DeployedRole",
    "Unfinished",
    "ask",
    "ask_near",
    "fetch_model",
    "load_config",
    "load_config_of",
    "serve",
)
