"""The files of small deployments, written all at once on one machine: to try `serve` and `ask`.

Each system has an `Example`: its fields are the options of `veilring deploy SYSTEM`, and its
docstring is the help of that command. In an example one process holds all rows, so that the ranges
in the terms are the table's own.
"""

import csv
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import tomli_w
from numpy.typing import NDArray
from typing_extensions import override

from veilring.config import Section
from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.data.schema import feature_terms
from veilring.data.table import (
    Categories,
    Features,
    Ranges,
    Table,
    TrainTestSplit,
    partition,
    split,
)
from veilring.deployment.config import Terms
from veilring.deployment.owner import LabellingSection, OwnerTerms
from veilring.deployment.peers import PeerTerms
from veilring.deployment.places import Area, PlacesTerms, utm_around
from veilring.deployment.prediction import PredictionSection, PredictionTerms
from veilring.deployment.survey import SurveySection, SurveyTerms
from veilring.deployment.votes import VotesSection, VotesTerms
from veilring.errors import InputError
from veilring.privacy.budgets import Budgets
from veilring.privacy.files import open_private
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.prediction.algorithm.kernels import Kernel, public_tau, tau_share
from veilring.protocols.radius.analyst import ask_nearest, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import SERVER, System
from veilring.protocols.treewalk.system import TreeWalk
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
CLIENT: Final = "client"
OWNER: Final = "owner"
REGISTRAR: Final = "registrar"
COLLECTOR: Final = "collector"
KEY: Final = "client"
"""The column that says whose row it is."""
TermsSettings = Mapping[str, Any]
"""Keys of terms: a value, or a table of keys."""
NO_SETTINGS: Final[TermsSettings] = MappingProxyType({})

IN_PRODUCTION: Final = (
    "In production each party makes its own key (`veilring keys new`), and the ranges in terms.toml"
    " come from what a column can hold, not from anybody's rows."
)
"""The last paragraph of a command's help."""
_ROSTER: Final = "roster.toml"
_TEST_SHARE: Final = 0.25
# Batches that a budget pays for: the second shows that answers add up, the third is refused.
_BATCHES: Final = 2
# The systems' own ε says too little on tables this small. On iris, noisy votes of three parties
# label 0.76 of the queries rightly at ε = 1 and 0.92 at 4; on digits, predictions 0.54 at 1 and
# 0.93 at 3.
_VOTES_EPSILON: Final = 4.0
_PREDICTION_EPSILON: Final = 3.0
_TAU_DECIMALS: Final = 2  # of a number that somebody is meant to read, and to change
# More than the queries that any example has: a stream's length is declared, and cannot follow them.
_STREAM: Final = 500
# Where rows pay, an analyst pays epsilon for each query: a file of them costs tens.
_RECORDS_TOTAL: Final = 100.0
# What a places client may ask at the system's ε: enough to look around, and to see that it adds up.
_QUESTIONS: Final = 5


def _hold_out(table: Table, seed: int, *, clients: int, option: str) -> TrainTestSplit:
    """Return the rows that are served, and the queries that clients ask.

    Args:
        table: A quarter of its rows are queries.
        seed: The seed of the split.
        clients: The number of clients that the queries are dealt among.
        option: The name of the option with that number.

    Raises:
        InputError: If there is no client, or not a query for each.
    """
    held_out = split(table, _TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= clients <= len(held_out.held_out):
        raise InputError(option, clients, f"1 to {len(held_out.held_out)}, as queries")
    return held_out


def begin_folder(
    folder: Path, terms: Terms, parties: Mapping[str, int], clients: Iterable[str]
) -> None:
    """Make the folder of an example, with the terms, a key for each member, and their roster.

    Args:
        folder: It must not exist.
        terms: What all have agreed on.
        parties: The port of each party that is served.
        clients: The members that only ask.

    Raises:
        InputError: If the folder exists or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError("--out", folder, f"a folder that can be made ({error})") from error
    members = []
    for name in (*parties, *clients):
        identity = make_identity(name)
        save_identity(identity, folder)
        if name in parties:
            members.append(Member.of(identity, LOOPBACK, parties[name]))
        else:
            members.append(Member.of(identity, kind="client"))
    Roster(tuple(members)).save(folder / _ROSTER)
    (folder / TERMS).write_text(terms.to_toml(), encoding="utf-8")


def write_config(folder: Path, name: str, **own: object) -> None:
    """Write a party's configuration, `NAME.toml`; what it has beside its key and the roster."""
    config = {"identity": f"{name}.key", "roster": _ROSTER, **own}
    (folder / f"{name}.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def write_clients(
    folder: Path, names: Sequence[str], queries: Table, ending: str = ".csv", /, **own: object
) -> None:
    """Deal queries among clients: a table, and a configuration, `NAME.toml`, for each."""
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


class NewDeployment(NamedTuple):
    """What an example is written into, and with.

    Attributes:
        folder: It must not exist.
        seed: The seed of all that is drawn.
        port: The port of the first party that listens; each next one has the next.
        settings: Keys of the terms, table by table.
    """

    folder: Path
    seed: int
    port: int
    settings: TermsSettings

    def serve(self, name: str) -> str:
        """Return the command that starts a party."""
        return f"serve {self.folder / name}.toml"

    def send(self, command: str, name: str, ending: str = ".csv") -> str:
        """Return the command by which a client sends a file of rows, such as `ask`."""
        return f"{command} {self.folder / name}.toml {self.folder / name}{ending}"

    def show(self, ledger: str) -> str:
        """Return the command that shows what was spent."""
        return f"ledger show {self.folder / ledger}"


def _numbered(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


class Example(Section, ABC):
    """A small deployment of one system. A subclass adds the options of its command as fields.

    Raises:
        InputError: If options do not go together.
    """

    section: ClassVar[type[Section] | None] = None
    """The model of the terms' table that has the system's parameters, which are options, too."""
    table: ClassVar[str] = ""
    """The name of that table."""
    in_production: ClassVar[str] = IN_PRODUCTION
    """How a real deployment differs, for the command's help."""
    source: ClassVar[str] = "A data set, such as wine, or a path to a .csv file."
    """What the rows are read from, for the command's help."""
    draws: ClassVar[str] = "The seed of the split."
    """What a seed decides, for the command's help; nothing if it decides nothing."""
    ports: ClassVar[str] = "The server's port."
    """Which parties listen, for the command's help."""

    def write(
        self,
        source: Any,  # noqa: ANN401  (a subclass's own kind)
        folder: Path,
        *,
        seed: int,
        port: int,
        settings: TermsSettings = NO_SETTINGS,
    ) -> tuple[str, ...]:
        """Write keys, roster, terms, rows, queries and configurations into a new folder.

        Args:
            source: A `Table` with all rows; for places, the path of a CSV file.
            folder: It must not exist.
            seed: The seed of all that is drawn.
            port: The port of the first party that listens; each next one has the next.
            settings: Keys of the terms, table by table.

        Returns:
            The commands to try, each without the word `veilring`.

        Raises:
            InputError: If the folder exists or something does not fit.
        """
        return self._write(source, NewDeployment(folder, seed, port, settings))

    @abstractmethod
    def _write(self, source: Any, to: NewDeployment) -> tuple[str, ...]:  # noqa: ANN401  (a subclass's own kind)
        """Do as `write`."""

    def tables(self, settings: TermsSettings, **usual: object) -> dict[str, Any]:
        """Return the tables of the terms: what is usual here, and over it what is set."""
        tables: dict[str, Any] = {self.table: {k: v for k, v in usual.items() if v is not None}}
        for name, value in settings.items():
            both = isinstance(value, Mapping) and isinstance(tables.get(name), dict)
            tables[name] = {**tables[name], **value} if both else value
        return tables


def write_peers(  # noqa: PLR0913  (each is chosen by a command's option)
    table: Table,
    protocol: System,
    folder: Path,
    *,
    parties: Sequence[str],
    seed: int,
    port: int,
    deal: Callable[..., Sequence[NDArray[np.int64]]] = partition,
    test_share: float = _TEST_SHARE,
    queries: int | None = None,
    budget: float | None = None,
) -> tuple[str, ...]:
    """Write keys, roster, terms, rows, queries and configurations into a new folder.

    Args:
        table: A part of its rows is dealt to the parties; the others are queries.
        protocol: A system among peers that all hold rows, or of an owner who is trusted with them.
        folder: It must not exist.
        parties: The names of the parties; the configuration of each is `NAME.toml`. An owner is a
            party alone.
        seed: The seed of the split and the partition.
        port: The first party's; each next one has the next.
        deal: Chooses the parties' rows, as `veilring.data.table` does.
        test_share: The share of the rows that are queries.
        queries: The number of queries; by default all of these.
        budget: The ε that each party may spend, where any is spent; by default two prices.

    Returns:
        The names of the parties.

    Raises:
        InputError: If the folder exists or something does not fit.
    """
    streams = Streams(seed)
    train, held_out = split(table, test_share, streams.generator("split"))
    parties = (OWNER,) if protocol.has_owner else parties
    dealt = deal(train.y, len(parties), streams.generator("partition"))
    terms = PeerTerms.of_table(table, protocol=protocol.declaring(len(train)))
    terms.membership(len(parties), count="parties.count")
    price = terms.price(len(parties))
    if price is not None:
        terms = terms.model_copy(update={"budget": _BATCHES * price if budget is None else budget})
    terms.checked(len(parties))
    ports = {name: port + offset for offset, name in enumerate(parties)}
    begin_folder(folder, terms, ports, (CLIENT,))
    for name, rows in zip(parties, dealt, strict=True):
        write_table(folder / f"{name}.csv", train.take(rows))
        ledger = {} if price is None else {"ledger": f"{name}.db"}
        write_config(folder, name, terms=TERMS, role="member", rows=f"{name}.csv", **ledger)
    asked = len(held_out) if queries is None else min(queries, len(held_out))
    write_table(folder / "queries.csv", held_out.take(np.arange(asked)))
    write_config(folder, CLIENT, terms=TERMS, role="client", ask=parties[0])
    return tuple(parties)


def _only(table: Table, column: str) -> Table:
    """Return a table with one of its columns."""
    kept = {feature.name: feature for feature in feature_terms(table.features)}
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


class VotesExample(Example):
    """Write what each party of noisy votes, and their client, would hold on a machine of its own.

    Then start each party, in a terminal of its own, and ask them:

        veilring deploy votes iris --radius 0.3 --out votes
        veilring serve votes/party-0.toml        # and party-1, party-2
        veilring ask votes/client.toml votes/client.csv
        veilring ledger show votes/party-1.db

    With --k the number of all rows is public.

    Attributes:
        epsilon: The price of a batch of queries.
        budget: The price of all batches together, at most; by default that of two.
        parties: The number of parties.
    """

    section = VotesSection
    table = "votes"
    source = "A data set, such as iris, or a path to a .csv file."
    draws = "The seed of the split and the partition."
    ports = "The first party's port; the next has the next."

    epsilon: float = _VOTES_EPSILON
    budget: float | None = None
    parties: int = 3

    @override
    def _write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        rows, queries = _hold_out(source, to.seed, clients=1, option="queries")
        budget = _BATCHES * self.epsilon if self.budget is None else self.budget
        tables = self.tables(to.settings, epsilon=self.epsilon, budget=budget)
        if "k" in tables["votes"]:
            tables["votes"].setdefault("rows", len(rows))
        terms = VotesTerms.of_table(source, **tables).checked(self.parties)
        dealt = partition(rows.y, self.parties, Streams(to.seed).generator("partition"))
        names = _numbered("party", self.parties)
        ports = {name: to.port + place for place, name in enumerate(names)}
        begin_folder(to.folder, terms, ports, (CLIENT,))
        for name, own in zip(names, dealt, strict=True):
            write_table(to.folder / f"{name}.csv", rows.take(own))
            config = {"role": "votes-member", "rows": f"{name}.csv", "ledger": f"{name}.db"}
            write_config(to.folder, name, terms=TERMS, **config)
        write_clients(to.folder, (CLIENT,), queries, role="client", ask=names[0])
        return (
            *map(to.serve, names),
            to.send("ask", CLIENT),
            to.show(f"{names[0]}.db"),
        )


class OwnerExample(Example):
    """Write what a data owner and its analysts would hold on machines of their own.

    Then start the owner, and ask it, in a terminal of your own:

        veilring deploy owner iris --radius 0.2 --out owner
        veilring serve owner/owner.toml
        veilring ask owner/analyst-0.toml owner/analyst-0.csv
        veilring ledger show owner/queries.ledger

    Attributes:
        total: The budget of all analysts together; by default that of each, or 100 with --record.
        analyst: The budget of any one of them; by default two batches, or with --record the total.
        record: Let each row have this budget, and pay for the balls it votes in.
        epsilon: The price that an analyst offers.
        radius: The radius that an analyst asks for.
        k: Or the number of neighbours.
        analysts: The number of analysts, among whom the queries are dealt.
    """

    section = LabellingSection
    table = "labelling"
    ports = "The owner's port."

    total: float | None = None
    analyst: float | None = None
    record: float | None = None
    epsilon: float = DataOwner().epsilon
    radius: float | None = None
    k: int | None = None
    analysts: int = 2

    @override
    def _write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        if (self.radius is None) == (self.k is None):
            raise InputError.because("give either --radius or --k", field="--radius")
        accounting = None if self.record is None else "record"
        terms = OwnerTerms.of_table(
            source, **self.tables(to.settings, accounting=accounting)
        ).checked()
        self._check(terms)
        rows, queries = _hold_out(source, to.seed, clients=self.analysts, option="--analysts")
        names = _numbered("analyst", self.analysts)
        begin_folder(to.folder, terms, {OWNER: to.port}, names)
        write_table(to.folder / f"{OWNER}.csv", rows)
        owner = {"role": "data-owner", "rows": f"{OWNER}.csv", "budgets": self.budgets}
        write_config(to.folder, OWNER, terms=TERMS, **owner)
        asked = {"radius": self.radius} if self.k is None else {"k": self.k}
        write_clients(
            to.folder, names, queries, role="analyst", ask=OWNER, epsilon=self.epsilon, **asked
        )
        return (
            to.serve(OWNER),
            *(to.send("ask", name) for name in names),
            to.show("queries.ledger"),
        )

    @property
    def budgets(self) -> dict[str, float]:
        """The table `budgets` of the owner's configuration."""
        each = _BATCHES * self.epsilon
        usual = {"total": _RECORDS_TOTAL}
        if self.record is None:
            usual = {"total": each * self.analysts, "analyst": each}
        given = {"total": self.total, "analyst": self.analyst, "record": self.record}
        return usual | {name: amount for name, amount in given.items() if amount is not None}

    def _check(self, terms: OwnerTerms) -> None:
        """Refuse what the owner would not start with, or not answer."""
        query, budgets = np.zeros((1, terms.width)), self.budgets
        try:
            Budgets("epsilon", budgets["total"], budgets.get("analyst"), {}, self.record)
            if self.k is not None:
                request = ask_nearest(query, self.k, self.epsilon)
            else:
                request = ask_within(query, np.full(1, self.radius, np.float64), self.epsilon)
            terms.rules.check(request)
        except InputError as error:
            option = "--radius" if error.field == "radii" else f"--{error.field}"
            raise InputError.of(error, option) from error


class PredictionExample(Example):
    """Write what a prediction server, its records administrator and its clients would each hold.

    Then start the server, add records, and ask it:

        veilring deploy prediction digits --out predict
        veilring serve predict/server.toml
        veilring records add predict/registrar.toml predict/records.csv
        veilring ask predict/client-0.toml predict/client-0.csv
        veilring records forget predict/registrar.toml record-17
        veilring ledger show predict/state/budgets.sqlite

    The rows of an .npz file are taken for embeddings, and its records and queries are .npz files.

    Attributes:
        epsilon: The budget of all answers together.
        queries: The number of queries that are answered in all.
        apart: Make the promise to each client alone.
        clients: The number of clients, among whom the queries are dealt.
    """

    section = PredictionSection
    table = "prediction"
    source = "A data set, such as digits, or a path to a .csv or an .npz."

    epsilon: float = _PREDICTION_EPSILON
    queries: int = _STREAM
    apart: bool = False
    clients: int = 1

    @override
    def _write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        ending = NPZ if source.name.lower().endswith(NPZ) else ".csv"
        tables = self.tables(
            to.settings,
            epsilon=self.epsilon,
            queries=self.queries,
            clients="apart" if self.apart else "together",
        )
        if ending == NPZ:
            tables |= {"features": (), "dimensions": len(source.features)}
        rows, queries = _hold_out(source, to.seed, clients=self.clients, option="--clients")
        terms = _with_tau(PredictionTerms.of_table(source, **tables), queries, len(rows)).checked()
        names = _numbered("client", self.clients)
        begin_folder(to.folder, terms, {SERVER: to.port}, (REGISTRAR, *names))
        ids = _numbered("record", len(rows))
        write_table(to.folder / f"records{ending}", rows, ids=ids)
        server = {"role": "prediction-server", "administrators": [REGISTRAR]}
        write_config(to.folder, SERVER, terms=TERMS, **server)
        write_config(to.folder, REGISTRAR, terms=TERMS, role="records-administrator", server=SERVER)
        answered = terms.prediction.queries * (self.clients if self.apart else 1)
        queries = queries.take(np.arange(min(len(queries), answered)))
        write_clients(to.folder, names, queries, ending, role="prediction-client", ask=SERVER)
        return (
            to.serve(SERVER),
            f"records add {to.folder / REGISTRAR}.toml {to.folder / 'records'}{ending}",
            *(to.send("ask", name, ending) for name in names),
            f"records forget {to.folder / REGISTRAR}.toml {ids[0]}",
            to.show("state/budgets.sqlite"),
        )


def _with_tau(terms: PredictionTerms, queries: Table, rows: int) -> PredictionTerms:
    """Return terms whose τ is that of the queries that are dealt here, unless it was given."""
    asked = terms.prediction
    if asked.tau != "auto":
        return terms
    columns = queries.X if terms.dimensions else queries.features.ranges.to_unit(queries.X)
    share = tau_share(terms.width, rows, asked.epsilon)
    like = Kernel(asked.kernel, width=asked.width)
    tau = round(public_tau(terms.directions(columns), like, share), _TAU_DECIMALS)
    section = asked.model_copy(update={"tau": tau})
    return terms.model_copy(update={"prediction": section})


class SurveyExample(Example):
    """Write what a collector and its survey clients would hold on machines of their own.

    Then start the collector, submit, and estimate, also while they submit:

        veilring deploy survey wine --out survey
        veilring serve survey/collector.toml
        veilring submit survey/survey-client-0.toml survey/survey-client-0.csv
        veilring estimate survey/collector.toml

    Attributes:
        kind: frequency, means, discrete-bayes or gaussian-bayes.
        column: For frequency: the column whose values are counted.
        epsilon: The price of a client's report.
        clients: The number of clients: rows that are drawn from the data set with replacement.
        survey_clients: The number of survey clients, among whom the clients are dealt.
    """

    section = SurveySection
    table = "survey"
    draws = "The seed of the draw."
    ports = "The collector's port."

    kind: str = "discrete-bayes"
    column: str | None = None
    epsilon: float = LDPBayes().epsilon
    clients: int = 10_000
    survey_clients: int = 2

    @property
    def names(self) -> list[str]:
        """The names of the survey clients; each has `NAME.toml` and `NAME.csv`."""
        return _numbered("survey-client", self.survey_clients)

    @override
    def _write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        if not 1 <= self.survey_clients <= self.clients:
            raise InputError(
                "--survey-clients", self.survey_clients, f"1 to {self.clients}, as clients"
            )
        if (self.kind == "frequency") != (self.column is not None):
            raise InputError.because(
                "--column is for --kind frequency, which needs it", field="--column"
            )
        table = source if self.column is None else _only(source, self.column)
        terms = self._terms(table, to.settings)
        begin_folder(to.folder, terms, {COLLECTOR: to.port}, self.names)
        collector = {"role": "collector", "store": "reports.sqlite"}
        write_config(to.folder, COLLECTOR, terms=TERMS, **collector)
        drawn = Streams(to.seed).generator("clients").integers(len(table), size=self.clients)
        for number, name in enumerate(self.names):
            own = np.arange(number, self.clients, self.survey_clients)
            write_table(
                to.folder / f"{name}.csv",
                table.take(drawn[own]),
                ids=[f"client-{number}" for number in own.tolist()],
                key=KEY,
                labelled=bool(terms.classes),
                encoded=self.column is None,  # one column is counted by its categories
            )
            survey_client = {"role": "survey-client", "collector": COLLECTOR, "key": KEY}
            outbox = f"{name}.outbox.sqlite"
            write_config(to.folder, name, **survey_client, outbox=outbox, budget=self.epsilon)
        return (
            to.serve(COLLECTOR),
            *(to.send("submit", name) for name in self.names),
            f"estimate {to.folder / COLLECTOR}.toml",
        )

    def _terms(self, table: Table, settings: TermsSettings) -> SurveyTerms:
        features, ranges = table.features, table.features.ranges
        columns = [
            {"name": name, "low": low, "high": high}
            for name, low, high in zip(features.names, ranges.lows, ranges.highs, strict=True)
        ]
        if self.column is not None:
            columns = [
                each.model_dump(exclude_defaults=True) for each in feature_terms(table.features)
            ]
        classes = () if self.kind in {"frequency", "means"} else features.classes
        tables = self.tables(settings, kind=self.kind, epsilon=self.epsilon)
        return SurveyTerms.of(classes=classes, features=columns, **tables).checked()


class PlacesExample(Example):
    """Write what a server of places and its client would hold on machines of their own.

    Then start the server, and look for what is near, in a terminal of your own:

        veilring deploy places places.csv --out atlas
        veilring serve atlas/server.toml
        veilring ask atlas/client.toml --near 37.7749,-122.4194 --epsilon 8
        veilring ledger show atlas/questions.ledger

    The plane is the UTM zone around the places, good to a metre in a kilometre.

    Attributes:
        latitude: The column of latitudes.
        longitude: The column of longitudes.
        budget: The price of all of the client's questions together, at most.
    """

    source = "A CSV file with latitudes and longitudes."
    in_production = "In production each makes its own key (`veilring keys new`)."
    draws = ""

    latitude: str = "lat"
    longitude: str = "lon"
    budget: float = _QUESTIONS * TreeWalk().epsilon

    @override
    def _write(self, source: Path, to: NewDeployment) -> tuple[str, ...]:
        columns = {"latitude": self.latitude, "longitude": self.longitude}
        # The plane and the number of the places are not known before they are read.
        degrees = PlacesTerms.of(crs="EPSG:3857", places=2, **columns).read_degrees(source)
        found = {"crs": utm_around(degrees), "places": len(degrees), "area": Area.around(degrees)}
        terms = PlacesTerms.of(**columns | found | dict(to.settings))
        terms.projection.to_metres(degrees)
        begin_folder(to.folder, terms, {SERVER: to.port}, (CLIENT,))
        shutil.copyfile(source, to.folder / "places.csv")
        write_config(to.folder, SERVER, terms=TERMS, role="places", rows="places.csv")
        client = {"role": "places-client", "ask": SERVER, "budget": self.budget}
        write_config(to.folder, CLIENT, terms=TERMS, **client)
        return (
            to.serve(SERVER),
            f"ask {to.folder / CLIENT}.toml --near LAT,LON --epsilon {TreeWalk().epsilon:g}",
            to.show("questions.ledger"),
        )


EXAMPLES: Final[Mapping[str, type[Example]]] = MappingProxyType(
    {
        "votes": VotesExample,
        "survey": SurveyExample,
        "owner": OwnerExample,
        "prediction": PredictionExample,
        "places": PlacesExample,
    }
)
"""By the name in `veilring deploy`. Peers are made from a scenario instead: see `write_peers`."""
