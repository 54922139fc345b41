"""A trial deployment of parties that all hold rows, or of a data owner, from a scenario's parts."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from veilring.arrays import Ints
from veilring.data.table import TEST_SHARE, Table, partition, split
from veilring.deployment.examples.example import BATCHES
from veilring.deployment.examples.folder import CLIENT, OWNER, write_folder, write_table
from veilring.deployment.peers import PeerTerms
from veilring.protocols.system import System
from veilring.randomness import Streams


def write_peers(  # noqa: PLR0913  (each is chosen by a command's option)
    table: Table,
    protocol: System,
    folder: Path,
    *,
    parties: Sequence[str],
    seed: int,
    port: int,
    deal: Callable[..., Sequence[Ints]] = partition,
    test_share: float = TEST_SHARE,
    queries: int | None = None,
    budget: float | None = None,
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    Args:
        table: The table; some of its rows are divided among the parties, the others are queries.
        folder: The folder, which must not exist.
        parties: The names of the parties; the configuration of each is `NAME.toml`. An owner is a
            single party.
        port: The port of the first party; the others get the following ports.
        queries: The number of queries; by default all of these.
        budget: The ε that each party may spend, if the system spends any; by default twice the
            price.

    Returns:
        The names of the parties.
    """
    streams = Streams(seed)
    train, held_out = split(table, test_share, streams.generator("split"))
    parties = (OWNER,) if protocol.has_owner else parties
    dealt = deal(train.y, len(parties), streams.generator("partition"))
    counted = {"rows": len(train)} if protocol.counts_publicly else {}
    terms = PeerTerms.of_table(table, protocol=protocol, **counted)
    terms.membership(len(parties), count="parties.count")
    price = terms.promise(len(parties)).epsilon
    if price is not None:
        terms = terms.model_copy(update={"budget": BATCHES * price if budget is None else budget})
    terms.checked(len(parties))
    configs = dict[str, dict[str, object]]()
    for name in parties:
        configs[name] = {"role": "member", "rows": f"{name}.csv"}
    configs[CLIENT] = {"role": "client", "ask": parties[0]}
    asked = len(held_out) if queries is None else min(queries, len(held_out))
    tables = {
        f"{name}.csv": train.take(rows) for name, rows in zip(parties, dealt, strict=True)
    } | {"queries.csv": held_out.take(np.arange(asked))}
    files = {name: partial(write_table, table=each) for name, each in tables.items()}
    request = terms.request(len(parties))
    write_folder(folder, terms, configs, files, port=port, listening=len(parties), request=request)
    return tuple(parties)
