"""All files of a small deployment at once, on one machine: to try what `serve` and `ask` do."""

import csv
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import ValidationError

from veilring.config import as_scenario_errors, scenario_error
from veilring.data import Features, Ranges, Split, Table, partition, split
from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.data.table import Categories
from veilring.deployment.owner import LabellingSection, OwnerTerms
from veilring.deployment.places import Area, PlacesTerms, utm_around
from veilring.deployment.prediction import PredictionSection, PredictionTerms
from veilring.deployment.ring import RingTerms
from veilring.deployment.schema import features_of_table
from veilring.deployment.survey import SurveyTerms
from veilring.deployment.votes import VotesSection, VotesTerms
from veilring.errors import InputError
from veilring.privacy.files import open_private
from veilring.privacy.ledger import Budgets
from veilring.protocols.radius.analyst import ask_nearest, ask_within
from veilring.protocols.ring.system import KNN_KEYS, PrivateKNN
from veilring.randomness import Streams
from veilring.transport.identity import make_identity, save_identity
from veilring.transport.roster import Member, Roster
from veilring.transport.tls import LOOPBACK


def columns_of(table: Table) -> Iterator[list[object]]:
    """Yield the header and the cells of each column but the label, as the table's source has it."""
    by_first = {each.first: each for each in table.features.categories}
    position = 0
    while position < len(table.features):
        if position in by_first:
            column = by_first[position]
            held = table.X[:, column.features].argmax(axis=1)
            yield [column.column, *(column.values[value] for value in held.tolist())]
            position = column.features.stop
        else:
            yield [table.features.names[position], *table.X[:, position].tolist()]
            position += 1


def features_of(table: Table) -> Iterator[list[object]]:
    """Yield the name and the numbers of each feature: a category is several of 0 and 1."""
    for name, values in zip(table.features.names, table.X.T.tolist(), strict=True):
        yield [name, *values]


TERMS: Final = "terms.toml"
_ROSTER: Final = "roster.toml"
_TEST_SHARE: Final = 0.25


def hold_out(table: Table, seed: int, *, askers: int, option: str) -> Split:
    """Return the rows that are served, and the queries that some ask.

    Args:
        table: A quarter of its rows are queries.
        seed: Of the split.
        askers: How many the queries are dealt among.
        option: What that number is called.

    Raises:
        InputError: If there is nobody to ask, or not a query for each.
    """
    held_out = split(table, _TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= askers <= len(held_out.held_out):
        raise InputError(option, askers, f"1 to {len(held_out.held_out)}, as queries")
    return held_out


def make_folder(folder: Path) -> None:
    """Make the folder of a trial.

    Raises:
        InputError: If it exists or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error


def write_keys(folder: Path, parties: Mapping[str, int], clients: Iterable[str]) -> None:
    """Make a key for each, and the roster that names them all.

    Args:
        folder: Where to.
        parties: The port of each party that is served.
        clients: Those who only ask.
    """
    members = []
    for name in (*parties, *clients):
        identity = make_identity(name)
        save_identity(identity, folder)
        if name in parties:
            members.append(Member.of(identity, LOOPBACK, parties[name]))
        else:
            members.append(Member.of(identity, kind="client"))
    Roster(tuple(members)).save(folder / _ROSTER)


def write_terms(folder: Path, text: str) -> None:
    """Write what all have agreed on."""
    (folder / TERMS).write_text(text, encoding="utf-8")


def write_config(folder: Path, name: str, **own: object) -> None:
    """Write a party's configuration, `NAME.toml`; what it has beside its key and the roster."""
    config = {"identity": f"{name}.key", "roster": _ROSTER, **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def write_askers(
    folder: Path, names: Sequence[str], queries: Table, ending: str = ".csv", /, **own: object
) -> None:
    """Deal queries among those who ask: a table, and a configuration, `NAME.toml`, for each."""
    for number, name in enumerate(names):
        dealt = np.arange(number, len(queries), len(names))
        write_table(folder / f"{name}{ending}", queries.take(dealt))
        write_config(folder, name, terms=TERMS, **own)


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
        path: The file; its ending says which.
        table: The rows.
        ids: Whose or which each row is, if that is wanted; in a CSV file as its first column.
        key: The header of that column.
        labelled: Whether the labels are written.
        encoded: Whether a CSV file has the features that categories became, and not the columns.
    """
    if path.suffix == NPZ:
        labels, names = (table.y, table.features.classes) if labelled else (None, None)
        write_vectors(Vectors(table.X, labels, names, tuple(ids) or None), path)
        return
    columns: list[list[object]] = [[key, *ids]] if ids else []
    columns += features_of(table) if encoded else columns_of(table)
    if labelled:
        columns.append(["label", *(table.features.classes[label] for label in table.y.tolist())])
    with open_private(path, "w") as file:
        csv.writer(file).writerows(zip(*columns, strict=True))


OWNER: Final = "owner"


def write_owner(
    table: Table,
    labelling: LabellingSection,
    folder: Path,
    *,
    budgets: dict[str, float],
    asked: dict[str, float],
    analysts: int,
    seed: int,
    port: int,
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows is the owner's; the others are queries.
        labelling: How the owner labels.
        folder: It must not exist.
        budgets: As the owner's configuration has them.
        asked: What an analyst asks for: `epsilon`, and `r` or `k`.
        analysts: How many there are, at least 1; the queries are dealt among them.
        seed: Of the split.
        port: The owner's.

    Returns:
        The names of the analysts; each has `NAME.toml` and `NAME.csv`.

    Raises:
        InputError: If the folder exists or something does not fit; it names an option.
    """
    terms = OwnerTerms.of_table(table, labelling=labelling).checked()
    _require(terms, budgets, asked)
    rows, queries = hold_out(table, seed, askers=analysts, option="--analysts")
    make_folder(folder)
    names = tuple(f"analyst-{number}" for number in range(analysts))
    write_keys(folder, {OWNER: port}, names)
    write_terms(folder, terms.to_toml())
    write_table(folder / f"{OWNER}.csv", rows)
    owner = {"role": "data-owner", "rows": f"{OWNER}.csv", "budgets": budgets}
    write_config(folder, OWNER, terms=TERMS, **owner)
    write_askers(folder, names, queries, role="analyst", ask=OWNER, **asked)
    return names


def _require(terms: OwnerTerms, budgets: dict[str, float], asked: dict[str, float]) -> None:
    """Refuse what the owner would not start with, or not answer."""
    query, epsilon = np.zeros((1, terms.width)), asked["epsilon"]
    try:
        Budgets("epsilon", budgets["total"], budgets.get("analyst"), {}, budgets.get("record"))
        if "k" in asked:
            request = ask_nearest(query, int(asked["k"]), epsilon)
        else:
            request = ask_within(query, np.array([asked["r"]]), epsilon)
        terms.rules.check(request)
    except InputError as error:
        option = "--r" if error.field == "radii" else f"--{error.field}"
        raise InputError(option, error.value, error.allowed) from error


CLIENT: Final = "client"


def write_ring(  # noqa: PLR0913  (each is chosen by a command's option)
    table: Table,
    protocol: PrivateKNN,
    folder: Path,
    *,
    parties: Sequence[str],
    seed: int,
    port: int,
    deal: Callable[..., Sequence[NDArray[np.int64]]] = partition,
    test_share: float = _TEST_SHARE,
    queries: int | None = None,
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    Args:
        table: A part of its rows is dealt to the parties; the others are queries.
        protocol: The protocol's public parameters.
        folder: It must not exist.
        parties: The names of the parties; the configuration of each is `NAME.toml`.
        seed: The seed of the split and the partition.
        port: The first party's; each next one has the next.
        deal: Chooses the parties' rows, as `veilring.data.partition` does.
        test_share: The share of the rows that are queries.
        queries: The number of queries; by default all of these.

    Returns:
        The names of the parties.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    streams = Streams(seed)
    train, held_out = split(table, test_share, streams.generator("split"))
    dealt = deal(train.y, len(parties), streams.generator("partition"))
    terms = RingTerms.of_table(table, protocol=protocol)
    with as_scenario_errors({**KNN_KEYS, "parties": "parties.count"}, "protocol"):
        terms.parameters.sum.check(len(parties))
    make_folder(folder)
    ports = {name: port + offset for offset, name in enumerate(parties)}
    write_keys(folder, ports, (CLIENT,))
    write_terms(folder, terms.to_toml())
    for name, rows in zip(parties, dealt, strict=True):
        write_table(folder / f"{name}.csv", train.take(rows))
        write_config(folder, name, terms=TERMS, role="ring-member", rows=f"{name}.csv")
    asked = len(held_out) if queries is None else min(queries, len(held_out))
    write_table(folder / "queries.csv", held_out.take(np.arange(asked)))
    write_config(folder, CLIENT, terms=TERMS, role="client", ask=parties[0])
    return tuple(parties)


def write_votes(
    table: Table, votes: Mapping[str, object], folder: Path, *, parties: int, seed: int, port: int
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows is dealt to the parties evenly; the others are queries.
        votes: How they vote, as keys of `VotesSection`; where k is given, `rows` are the table's.
        folder: It must not exist.
        parties: How many there are.
        seed: Of the split and the partition.
        port: The first party's; each next one has the next.

    Returns:
        The names of the parties; the configuration of each is `NAME.toml`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    split = hold_out(table, seed, askers=1, option="queries")
    rows = {"rows": len(split.train)} if votes.get("k") is not None else {}
    terms = VotesTerms.of_table(table, votes=_section({**votes, **rows})).checked(parties)
    dealing = Streams(seed).generator("partition")
    dealt = partition(split.train.y, parties, dealing)
    make_folder(folder)
    names = tuple(f"party-{number}" for number in range(parties))
    write_keys(folder, {name: port + place for place, name in enumerate(names)}, (CLIENT,))
    write_terms(folder, terms.to_toml())
    for name, own in zip(names, dealt, strict=True):
        write_table(folder / f"{name}.csv", split.train.take(own))
        config = {"role": "votes-member", "rows": f"{name}.csv", "ledger": f"{name}.db"}
        write_config(folder, name, terms=TERMS, **config)
    write_askers(folder, (CLIENT,), split.held_out, role="client", ask=names[0])
    return names


def _section(votes: Mapping[str, object]) -> VotesSection:
    try:
        return VotesSection.model_validate(votes)
    except ValidationError as error:
        raise scenario_error(error, VotesSection) from None


SERVER: Final = "server"
REGISTRAR: Final = "registrar"


def write_prediction(
    table: Table,
    prediction: PredictionSection,
    folder: Path,
    *,
    queriers: int,
    seed: int,
    port: int,
    ending: Literal[".csv", ".npz"] = ".csv",
) -> tuple[str, ...]:
    """Write keys, roster, terms, records, queries and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: A part of its rows are records; the others are queries, as many as are answered.
        prediction: What is answered.
        folder: It must not exist.
        queriers: How many there are, at least 1; the queries are dealt among them.
        seed: Of the split.
        port: The server's.
        ending: Of the files of records and queries; with `.npz` rows are taken for embeddings.

    Returns:
        The names of the queriers; each has `NAME.toml`, and queries in `NAME.csv` or `NAME.npz`.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    embedded = {"features": (), "dimensions": len(table.features)} if ending == NPZ else {}
    terms = PredictionTerms.of_table(table, prediction=prediction, **embedded).checked()
    rows, queries = hold_out(table, seed, askers=queriers, option="--queriers")
    make_folder(folder)
    names = tuple(f"querier-{number}" for number in range(queriers))
    write_keys(folder, {SERVER: port}, (REGISTRAR, *names))
    write_terms(folder, terms.to_toml())
    ids = [f"record-{row}" for row in range(len(rows))]
    write_table(folder / f"records{ending}", rows, ids=ids)
    write_config(folder, SERVER, terms=TERMS, role="prediction-server", administrators=[REGISTRAR])
    write_config(folder, REGISTRAR, terms=TERMS, role="records-administrator", server=SERVER)
    answered = prediction.queries * (queriers if prediction.queriers == "apart" else 1)
    queries = queries.take(np.arange(min(len(queries), answered)))
    write_askers(folder, names, queries, ending, role="querier", ask=SERVER)
    return names


COLLECTOR: Final = "collector"
KEY: Final = "client"
"""The column that says whose row it is."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried.

    Attributes:
        kind: What is asked.
        epsilon: What a report may spend.
        clients: How many rows are drawn.
        submitters: Among how many they are dealt.
        column: The column whose values are counted, for `frequency` alone.

    Raises:
        InputError: If there is no submitter, or not a client for each, or `column` is missing for
            `frequency` or given for another kind.
    """

    kind: str
    epsilon: float
    clients: int
    submitters: int
    column: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.submitters <= self.clients:
            raise InputError("--submitters", self.submitters, f"1 to {self.clients}, as clients")
        if (self.kind == "frequency") != (self.column is not None):
            given = "missing" if self.column is None else self.column
            raise InputError("--column", given, "a column with --kind frequency, and only then")


def write_collection(
    table: Table, trial: Trial, folder: Path, *, seed: int, port: int
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows and configurations into a new folder.

    The ranges in the terms are the table's own, as one holds it all here anyway.

    Args:
        table: Clients are drawn from its rows, with replacement.
        trial: What is tried.
        folder: It must not exist.
        seed: Of the draw.
        port: The collector's.

    Returns:
        The names of the submitters; each has `NAME.toml` and `NAME.csv`.

    Raises:
        InputError: If the folder exists or the trial does not fit.
    """
    if trial.column is not None:
        table = _only(table, trial.column)
    terms = _terms(table, trial)
    make_folder(folder)
    names = tuple(f"submitter-{number}" for number in range(trial.submitters))
    write_keys(folder, {COLLECTOR: port}, names)
    write_terms(folder, terms.to_toml())
    collector = {"role": "collector", "store": "reports.sqlite"}
    write_config(folder, COLLECTOR, terms=TERMS, **collector)
    drawn = Streams(seed).generator("clients").integers(len(table), size=trial.clients)
    for number, name in enumerate(names):
        own = np.arange(number, trial.clients, trial.submitters)
        ids = [f"client-{number}" for number in own.tolist()]
        rows, labelled = table.take(drawn[own]), bool(terms.classes)
        encoded = trial.column is None  # one column is counted by its categories
        write_table(
            folder / f"{name}.csv", rows, ids=ids, key=KEY, labelled=labelled, encoded=encoded
        )
        submitter = {"role": "submitter", "collector": COLLECTOR, "key": KEY}
        outbox = f"{name}.outbox.sqlite"
        write_config(folder, name, **submitter, outbox=outbox, budget=trial.epsilon)
    return names


def _only(table: Table, column: str) -> Table:
    """Return a table with one of its columns."""
    kept = {feature.name: feature for feature in features_of_table(table)}
    if column not in kept:
        raise InputError("--column", column, f"a column: {', '.join(kept)}")
    features, ranges = table.features, table.features.ranges
    categories = {each.column: each for each in features.categories}
    if column not in categories:
        place = slice(first := features.names.index(column), first + 1)
        of_it: tuple[Categories, ...] = ()
    else:
        place, of_it = categories[column].features, (categories[column]._replace(first=0),)
    only = Features(
        features.names[place],
        Ranges(ranges.lows[place], ranges.highs[place]),
        features.classes,
        of_it,
    )
    return replace(table, X=table.X[:, place], features=only)


def _terms(table: Table, trial: Trial) -> SurveyTerms:
    features, ranges = table.features, table.features.ranges
    columns = [
        {"name": name, "low": low, "high": high}
        for name, low, high in zip(features.names, ranges.lows, ranges.highs, strict=True)
    ]
    if trial.column is not None:
        columns = [each.model_dump(exclude_defaults=True) for each in features_of_table(table)]
    needs_classes = trial.kind not in {"frequency", "means"}
    content = {
        "survey": {"kind": trial.kind, "epsilon": trial.epsilon},
        "classes": features.classes if needs_classes else (),
        "features": columns,
    }
    try:
        terms = SurveyTerms.model_validate(content)
    except ValidationError as error:
        raise scenario_error(error, SurveyTerms) from None
    return terms.checked()


SEEKER: Final = "seeker"
# While the places are read for the first time, neither their plane nor their number is known.
_ANY: Final = PlacesTerms(crs="EPSG:3857", places=2)


def write_places(
    places: Path, folder: Path, *, columns: tuple[str, str], budget: float, port: int
) -> PlacesTerms:
    """Write keys, roster, terms, places and configurations into a new folder.

    Args:
        places: A CSV file.
        folder: It must not exist.
        columns: Of latitudes and longitudes.
        budget: Of the seeker.
        port: The server's.

    Returns:
        The terms.

    Raises:
        InputError: If the folder exists, or the places are none.
    """
    latitude, longitude = columns
    named = _ANY.model_copy(update={"latitude": latitude, "longitude": longitude})
    degrees = named.read_degrees(places)
    found = {"crs": utm_around(degrees), "places": len(degrees), "area": Area.around(degrees)}
    terms = named.model_copy(update=found)
    terms.projection.to_metres(degrees)
    make_folder(folder)
    write_keys(folder, {SERVER: port}, (SEEKER,))
    write_terms(folder, terms.to_toml())
    shutil.copyfile(places, folder / "places.csv")
    write_config(folder, SERVER, terms=TERMS, role="places", rows="places.csv")
    write_config(folder, SEEKER, terms=TERMS, role="seeker", ask=SERVER, budget=budget)
    return terms
