"""`veilring serve`: one party by itself, on this machine."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer


def serve(
    config: Annotated[Path, typer.Argument(help="The party's configuration.", metavar="CONFIG")],
) -> None:
    """Be one party of a deployment until Ctrl-C or SIGTERM.

    The configuration names the role. For a member of a ring that answers private kNN queries:

        role     = "ring-member"

        identity = "ada.key"        # made by `veilring keys new`, this party's own

        roster   = "roster.toml"    # made by `veilring keys roster`, the same everywhere

        terms    = "terms.toml"     # what is run on which schema, the same everywhere

        rows     = "ada.csv"        # this party's own; the label is the last column

        listen   = "0.0.0.0"        # loopback if left out

    It waits for the other parties, dials those that were lost again, and logs to stderr. To try it
    on one machine, `veilring deploy ring wine --out DIR` writes all files of a small ring.

    For a party of noisy votes, which pays before it adds to a sum:

        role     = "votes-member"

        identity = "ada.key"

        roster   = "roster.toml"

        terms    = "terms.toml"     # what a batch costs, what all may, which rows vote

        rows     = "ada.csv"

        ledger   = "votes.db"       # what was spent, and labels; never delete it

        listen   = "0.0.0.0"

    `veilring deploy votes iris --r 0.3 --out DIR` writes all files of a small one.

    For a collector, which stores what `veilring submit` hands in:

        role     = "collector"

        identity = "census.key"

        roster   = "roster.toml"

        terms    = "terms.toml"       # what is asked; it is published

        store    = "reports.sqlite"   # or postgresql://USER@HOST/DATABASE

        listen   = "0.0.0.0"

    `veilring deploy survey wine --out DIR` writes all files of a small collection.

    For a data owner, which labels analysts' queries under a privacy budget:

        role     = "data-owner"

        identity = "clinic.key"

        roster   = "roster.toml"

        terms    = "terms.toml"        # what is answered on which schema; analysts hold it, too

        rows     = "clinic.csv"        # its own; the label is the last column

        ledger   = "queries.ledger"    # what was spent, and each answer; never delete it

        budgets  = { total = 4.0, analyst = 2.0 }

        listen   = "0.0.0.0"

    `veilring deploy owner iris --r 0.2 --out DIR` writes all files of a small one.

    For a server of places, which anybody may know, and near which others look in private:

        role     = "places"

        identity = "atlas.key"

        roster   = "roster.toml"

        terms    = "terms.toml"        # the map's plane in metres, and how many places there are

        rows     = "places.csv"        # with latitudes and longitudes in degrees

        listen   = "0.0.0.0"

    `veilring deploy places places.csv --out DIR` writes all files of a small one.

    For a prediction server, whose records `veilring records` adds and has forgotten meanwhile:

        role     = "prediction-server"

        identity = "clinic.key"

        roster   = "roster.toml"

        terms    = "terms.toml"        # what is answered, and how a row becomes a direction

        administrators = ["registrar"] # who may add and forget records

        state    = "state"             # the records, and what they spent; never delete it

        listen   = "0.0.0.0"

    `veilring deploy prediction digits --out DIR` writes all files of a small one.
    """
    import asyncio
    import logging

    from veilring.deployment import load_config
    from veilring.deployment import serve as serve_role
    from veilring.nodes.runtimes.processes import party_loop

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    logging.getLogger("veilring").setLevel(logging.INFO)
    role = serve_role(load_config(config))
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_serve_until_told(role))


async def _serve_until_told(role: Coroutine[Any, Any, None]) -> None:
    """Serve until the first signal, and then leave in order."""
    import asyncio
    import contextlib
    import signal

    serving = asyncio.create_task(role)
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
