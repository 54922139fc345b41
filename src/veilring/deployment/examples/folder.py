"""The folder of a deployment on one machine: keys, roster, terms, tables, configurations, state."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tomli_w

from veilring.data.frames import cells_of_table
from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.data.table import Table
from veilring.deployment.config import Terms
from veilring.deployment.duties import begin_state
from veilring.deployment.policy import ANY_K, Policy, Request
from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.transport.roster import Member, Roster, make_identity, save_identity
from veilring.transport.tls import LOOPBACK

TERMS: Final = "terms.toml"
"""The name of the file of the terms."""
ROSTER: Final = "roster.toml"
"""The name of the file of the roster."""
CLIENT: Final = "client"
OWNER: Final = "owner"
REGISTRAR: Final = "registrar"
COLLECTOR: Final = "collector"
SURVEY_CLIENT: Final = "survey-client"
Configs = dict[str, Mapping[str, object]]
"""The configuration of each member, by its name, as the table of a TOML file."""
# Far more queries than a study needs, and far fewer than a client can send.
_QUERIES_HOUR: Final = 10_000
_QUERIES_DAY: Final = 50_000
_DRAFT: Final = """\
# What has `agreed = false` is from rows, and reveals something about them. Replace the range or the
# categories by what is possible, and remove that line; until then, each party's log has a warning.

"""


def write_folder(
    folder: Path,
    terms: Terms,
    configs: Mapping[str, Mapping[str, object]],
    files: Mapping[str, Callable[[Path], object]],
    *,
    port: int,
    listening: int = 1,
    request: Request | None = None,
) -> None:
    """Write a deployment into a new folder, and create the state of each party.

    Args:
        folder: The folder, which must not exist.
        configs: The configuration of each member, `NAME.toml`, without the files that all have.
        files: The function that writes each other file, by its name.
        port: The port of the first party; the others get the following ports.
        listening: The number of parties, which come first; all others are clients.
        request: A request under the terms; each party then gets a policy `NAME.policy.toml`.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be created ({error})") from error
    members = []
    for number, name in enumerate(configs):
        identity = make_identity(name)
        save_identity(identity, folder)
        if number < listening:
            members.append(Member.of(identity, LOOPBACK, port + number))
        else:
            members.append(Member.of(identity, kind="client"))
    Roster(tuple(members)).save(folder / ROSTER)
    text = terms.to_toml()
    draft = _DRAFT if "agreed = false" in text else ""
    (folder / TERMS).write_text(draft + text, encoding="utf-8")
    for name, write in files.items():
        write(folder / name)
    for number, (name, own) in enumerate(configs.items()):
        config = {"identity": f"{name}.key", "roster": ROSTER, **own}
        if "protocol" not in own:
            config["terms"] = TERMS
        if request is not None and number < listening:
            config["policy"] = own_policy = f"{name}.policy.toml"
            clients = [each for each in list(configs)[listening:] if each != REGISTRAR]
            text = _careful_policy(request, clients).to_toml()
            (folder / own_policy).write_text(text, encoding="utf-8")
        path = folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        begin_state(path)


def _careful_policy(request: Request, clients: Sequence[str]) -> Policy:
    """Return a policy that allows a request under the terms, and no more.

    Args:
        clients: The names of the clients.
    """
    limits: dict[str, Any] = {"clients": tuple(clients), "systems": (request.system,)}
    if request.counted:
        limits |= {"queries_hour": _QUERIES_HOUR, "queries_day": _QUERIES_DAY}
        parties = request.parties if request.parties > 1 else None
        limits |= {"parties": parties, "reveal": request.reveal}
        k = None if request.k == ANY_K else request.k
        limits |= {"k": k, "epsilon": request.epsilon or None}
    return Policy(**limits)


def dealt(
    names: Sequence[str], queries: Table, ending: str = ".csv"
) -> dict[str, Callable[[Path], object]]:
    """Divide queries among clients, each with a file `NAME.csv`."""
    return {
        f"{name}{ending}": partial(
            write_table, table=queries.take(np.arange(number, len(queries), len(names)))
        )
        for number, name in enumerate(names)
    }


def write_table(
    path: Path,
    table: Table,
    *,
    ids: Sequence[str] = (),
    key: str = "id",
    labelled: bool = True,
    encoded: bool = False,
) -> None:
    """Write a table as a CSV file whose last column is the label, or as an .npz file.

    Args:
        path: The file; its suffix determines the format.
        ids: The ids of the rows, if wanted; in a CSV file as its first column.
    """
    if path.suffix == NPZ:
        labels, names = (table.y, table.features.classes) if labelled else (None, None)
        write_vectors(Vectors(table.X, labels, names, tuple(ids) or None), path)
        return
    columns: list[list[object]] = [[key, *ids]] if ids else []
    if encoded:
        columns += _features_of(table)
    else:
        columns += [[name, *cells] for name, cells in cells_of_table(table).items()]
    if labelled:
        columns.append(["label", *table.features.named(table.y)])
    with open_private(path, "w") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))


def _features_of(table: Table) -> Iterator[list[object]]:
    """Yield the name and the numbers of each feature: a category becomes one-hot numbers."""
    for name, values in zip(table.features.names, table.X.T.tolist(), strict=True):
        yield [name, *values]
