"""Files of small deployments on one machine, to try out `serve` and `ask`.

Each system has an `Example`: its fields are the options of `veilring deploy SYSTEM`, and its
docstring is the help of that command. One process has all rows of an example, so the ranges in the
terms are the table's own.
"""

import csv
import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import tomli_w
from typing_extensions import override

from veilring.arrays import Ints
from veilring.config import Section
from veilring.data.frames import cells_of_table
from veilring.data.npz import NPZ, Vectors, write_vectors
from veilring.data.schema import feature_terms
from veilring.data.sources import is_public
from veilring.data.table import (
    TEST_SHARE,
    Categories,
    Features,
    Ranges,
    Table,
    TrainTestSplit,
    encode_columns,
    partition,
    split,
)
from veilring.deployment.collector import SURVEY_REQUEST
from veilring.deployment.config import STATE_SUFFIX, Terms, columns_of
from veilring.deployment.duties import begin_state
from veilring.deployment.owner import OwnerTerms, owner_request
from veilring.deployment.peers import PeerTerms
from veilring.deployment.places import PLACES_REQUEST, Area, PlacesTerms, utm_around
from veilring.deployment.policy import ANY_K, Policy, Request
from veilring.deployment.prediction import PredictionTerms, prediction_request
from veilring.deployment.questionnaire import AGGREGATED, Question, Questionnaire
from veilring.deployment.survey import MINIMUM_REPORTS, SurveySection, SurveyTerms
from veilring.errors import InputError
from veilring.privacy.budgets import Budgets
from veilring.privacy.files import open_private
from veilring.protocols.ldp.outbox import ROW_NUMBER
from veilring.protocols.ldp.system import LDPBayes
from veilring.protocols.prediction.algorithm.directions import Kernel, public_tau, tau_share
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.radius.owner import ask_nearest, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import SERVER, System
from veilring.protocols.treewalk.system import TreeWalk
from veilring.randomness import Streams
from veilring.transport.roster import Member, Roster, make_identity, save_identity
from veilring.transport.tls import LOOPBACK

_log = logging.getLogger("veilring.deploy")
TERMS: Final = "terms.toml"
"""The name of the file of the terms."""
ROSTER: Final = "roster.toml"
"""The name of the file of the roster."""
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


def _dealt(
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


CLIENT: Final = "client"
OWNER: Final = "owner"
REGISTRAR: Final = "registrar"
COLLECTOR: Final = "collector"
SURVEY_CLIENT: Final = "survey-client"
KEY: Final = "client"
"""The column that identifies the client of a row."""
TermsSettings = Mapping[str, Any]
"""Keys of terms: a value, or a table of keys."""
_Configs = dict[str, Mapping[str, object]]
NO_SETTINGS: Final[TermsSettings] = {}

IN_PRODUCTION: Final = (
    "In production each party makes its own key (`veilring keys new`), and the ranges in terms.toml"
    " come from the possible values of each column, never from rows."
)
"""The last paragraph of a command's help."""
# The number of batches that a budget pays for: the second shows that answers add up, the third is
# refused.
_BATCHES: Final = 2
# The system's own ε gives poor answers on tables this small: on digits, 0.54 of the queries are
# labelled correctly at 1 and 0.93 at 3.
_PREDICTION_EPSILON: Final = 3.0
_OF_ONE_COLUMN: Final = frozenset({"frequency", "words"})  # kinds of survey
_WITHOUT_CLASSES: Final = _OF_ONE_COLUMN | {"means"}
_TAU_DECIMALS: Final = 2  # digits of a number meant to be read and changed
# More queries than any example has: the length of a stream is declared, and cannot depend on them.
_STREAM: Final = 500
# The number of questions that a places client may ask at the system's ε: enough to try it out and
# to see that they add up.
_QUESTIONS: Final = 5


def _hold_out(table: Table, seed: int, *, clients: int, option: str) -> TrainTestSplit:
    """Return the rows to serve, and the queries of the clients.

    Args:
        table: The table; a quarter of its rows become queries.
    """
    held_out = split(table, TEST_SHARE, Streams(seed).generator("split"))
    if not 1 <= clients <= len(held_out.held_out):
        raise InputError(option, clients, f"1 to {len(held_out.held_out)}, as queries")
    return held_out


class NewDeployment(NamedTuple):
    """The destination and the settings of a new example.

    Attributes:
        folder: The folder, which must not exist.
        port: The port of the first party that listens; the others get the following ports.
    """

    folder: Path
    seed: int
    port: int
    settings: TermsSettings = NO_SETTINGS

    def serve(self, name: str) -> str:
        """Return the command that starts a party."""
        return f"serve {self.folder / name}.toml"

    def send(self, command: str, name: str, ending: str = ".csv") -> str:
        """Return the command with which a client sends a file of rows, such as `ask`."""
        return f"{command} {self.folder / name}.toml {self.folder / name}{ending}"

    def show(self, name: str) -> str:
        """Return the command that shows the spent budget."""
        return f"ledger show {self.folder / name}{STATE_SUFFIX}"


def _numbered(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


class Example(Section, ABC):
    """A small deployment of one system. A subclass adds the options of its command as fields."""

    section: ClassVar[type[Section] | None] = None
    """The model of the terms' table `protocol`, whose keys are options, too."""
    in_production: ClassVar[str] = IN_PRODUCTION
    """The difference of a real deployment, for the command's help."""
    source: ClassVar[str] = "Data set, such as wine, or a path to a .csv file."
    """The source of the rows, for the command's help."""
    metavar: ClassVar[str] = "SOURCE"
    """The name of the argument with the source."""
    draws: ClassVar[str] = "Seed of the split."
    """The use of the seed, for the command's help; empty if the example needs no seed."""
    ports: ClassVar[str] = "Port of the server."
    """The parties that listen, for the command's help."""

    @property
    def needs_label(self) -> bool:
        """Whether a file needs a column besides the label."""
        return True

    @abstractmethod
    def write(self, source: Any, to: NewDeployment) -> tuple[str, ...]:  # noqa: ANN401  (a subclass's own kind)
        """Write keys, roster, terms, rows, queries and configurations into a new folder.

        Args:
            source: A `Table` with all rows; for places, the path of a CSV file.

        Returns:
            The commands to try, without the word `veilring`.
        """

    def tables(self, settings: TermsSettings, **usual: object) -> dict[str, Any]:
        """Return the tables of the terms: the defaults, overridden by settings."""
        protocol = {k: v for k, v in usual.items() if v is not None}
        return _overridden({"protocol": protocol}, settings)


def _overridden(usual: Mapping[str, Any], settings: TermsSettings) -> dict[str, Any]:
    """Return the usual tables of terms, overridden by settings."""
    tables = dict(usual)
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
        terms = terms.model_copy(update={"budget": _BATCHES * price if budget is None else budget})
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


def _columns(table: Table) -> list[str]:
    """Return the names of all columns, the label last if there is one."""
    features = [feature.name for feature in feature_terms(table.features)]
    return [*features, table.label_name] if table.label_name else features


def _only(table: Table, column: str) -> Table:
    """Return a table with one of its columns, which may be the label."""
    if column not in _columns(table):
        raise InputError("--column", column, f"a column: {', '.join(_columns(table))}")
    if column == table.label_name:
        labels = np.array(table.features.named(table.y), np.str_)
        return encode_columns(table.name, {column: labels}, labels)
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


class OwnerExample(Example):
    """Write a trial deployment of a data owner and its analysts.

    Then start the owner, and query it from another terminal:

        veilring deploy owner iris --out owner
        veilring serve owner/owner.toml
        veilring ask owner/analyst-0.toml owner/analyst-0.csv
        veilring ledger show owner/owner.db

    Attributes:
        total: The budget of all analysts together. Default: twice the price of a batch for each.
        analyst: The budget of each analyst. Default: the price of two batches.
        epsilon: The ε that an analyst offers for a request.
        radius: The radius that an analyst asks for. Default: from its queries and the number of
            rows, which is then public.
        k: The number of neighbours, instead of a radius.
        analysts: The number of analysts that share the queries.
    """

    section = DataOwner
    ports = "Port of the owner."

    total: float | None = None
    analyst: float | None = None
    epsilon: float = DataOwner().epsilon
    radius: float | None = None
    k: int | None = None
    analysts: int = 2

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        if self.radius is not None and self.k is not None:
            raise InputError.because("give either --radius or --k", field="--radius")
        rows, queries = _hold_out(source, to.seed, clients=self.analysts, option="--analysts")
        public = len(rows) if self.radius is None and self.k is None else None
        tables = {"rows": public} | self.tables(to.settings, epsilon=self.epsilon)
        terms = OwnerTerms.of_table(source, **tables).checked()
        self._check(terms)
        names = _numbered("analyst", self.analysts)
        owner = {"role": "server", "rows": f"{OWNER}.csv", "budgets": self.budgets}
        radius = "auto" if self.radius is None else self.radius
        asked = {"radius": radius} if self.k is None else {"k": self.k}
        analyst = {"role": "client", "ask": OWNER, "epsilon": self.epsilon, **asked}
        files = {f"{OWNER}.csv": partial(write_table, table=rows)} | _dealt(names, queries)
        configs: _Configs = {OWNER: owner, **dict.fromkeys(names, analyst)}
        write_folder(to.folder, terms, configs, files, port=to.port, request=owner_request(terms))
        return (to.serve(OWNER), *(to.send("ask", name) for name in names), to.show(OWNER))

    @property
    def budgets(self) -> dict[str, float]:
        """The table `budgets` of the owner's configuration."""
        each = _BATCHES * self.epsilon
        usual = {"total": each * self.analysts, "analyst": each}
        given = {"total": self.total, "analyst": self.analyst}
        return usual | {name: amount for name, amount in given.items() if amount is not None}

    def _check(self, terms: OwnerTerms) -> None:
        """Refuse settings with which the owner would not start or not answer."""
        query, budgets = np.zeros((1, terms.width)), self.budgets
        try:
            Budgets("epsilon", budgets["total"], budgets["analyst"])
            if self.k is not None:
                request = ask_nearest(query, self.k, self.epsilon)
            else:
                request = ask_within(query, np.full(1, self.radius or 0.0), self.epsilon)
            terms.rules.check(request)
        except InputError as error:
            option = "--radius" if error.field == "radii" else f"--{error.field}"
            raise InputError.of(error, option) from error


class PredictionExample(Example):
    """Write a trial deployment of a prediction server, its records administrator and its clients.

    Then start the server, add records, and send queries:

        veilring deploy prediction digits --out predict
        veilring serve predict/server.toml
        veilring records add predict/registrar.toml predict/records.csv
        veilring ask predict/client-0.toml predict/client-0.csv
        veilring records forget predict/registrar.toml record-17
        veilring ledger show predict/server.db

    The rows of an .npz file are treated as embeddings; its records and queries become .npz files.

    Attributes:
        epsilon: The budget of all answers together.
        queries: The total number of queries that are answered.
        apart: Limit the guarantee to each client individually.
        clients: The number of clients that share the queries.
    """

    section = IndKNN
    source = "Data set, such as digits, or a path to a .csv or an .npz."

    epsilon: float = _PREDICTION_EPSILON
    queries: int = _STREAM
    apart: bool = False
    clients: int = 1

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
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
        ids = _numbered("record", len(rows))
        answered = terms.rules.queries * (self.clients if self.apart else 1)
        queries = queries.take(np.arange(min(len(queries), answered)))
        client = {"role": "client", "ask": SERVER}
        configs: _Configs = {
            SERVER: {"role": "server", "administrators": [REGISTRAR]},
            REGISTRAR: {"role": "administrator", "server": SERVER},
            **dict.fromkeys(names, client),
        }
        files = _dealt(names, queries, ending)
        files[f"records{ending}"] = partial(write_table, table=rows, ids=ids)
        write_folder(
            to.folder, terms, configs, files, port=to.port, request=prediction_request(terms)
        )
        return (
            to.serve(SERVER),
            f"records add {to.folder / REGISTRAR}.toml {to.folder / 'records'}{ending}",
            *(to.send("ask", name, ending) for name in names),
            f"records forget {to.folder / REGISTRAR}.toml {ids[0]}",
            to.show(SERVER),
        )


def _with_tau(terms: PredictionTerms, queries: Table, rows: int) -> PredictionTerms:
    """Return terms whose τ fits the queries of the clients, unless it was given."""
    asked = terms.protocol
    if asked.tau != "auto":
        return terms
    columns = queries.X if terms.dimensions else queries.features.ranges.to_unit(queries.X)
    share = tau_share(terms.width, rows, asked.epsilon)
    like = Kernel(asked.kernel, width=asked.width)
    tau = round(public_tau(terms.directions(columns), like, share), _TAU_DECIMALS)
    section = asked.model_copy(update={"tau": tau})
    return terms.model_copy(update={"protocol": section})


class SurveyExample(Example):
    """Write a trial deployment of a collector and its survey clients.

    Then start the collector, submit reports, and estimate at any time:

        veilring deploy survey wine --kind frequency --column alcohol --out survey
        veilring serve survey/collector.toml
        veilring submit survey/survey-client-0.toml survey/survey-client-0.csv
        veilring estimate survey/collector.toml

    Attributes:
        kind: frequency, words, means, discrete-bayes or gaussian-bayes.
        column: For frequency and words: the column whose values to count; by default the only one.
        epsilon: The price of a client's report.
        reports: The number of reports, each of one client, whose row is drawn from the data set
            with replacement.
        survey_clients: The number of machines that submit the reports.
    """

    section = SurveySection
    draws = "Seed of the split."
    ports = "Port of the collector."

    kind: str = "discrete-bayes"
    column: str | None = None
    epsilon: float = LDPBayes().epsilon
    reports: int = 10_000
    survey_clients: int = 2

    @property
    def names(self) -> list[str]:
        """The names of the survey clients; each has the files `NAME.toml` and `NAME.csv`."""
        return _numbered(SURVEY_CLIENT, self.survey_clients)

    @property
    @override
    def needs_label(self) -> bool:
        return self.kind not in _WITHOUT_CLASSES

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        if not 1 <= self.survey_clients <= self.reports:
            raise InputError(
                "--survey-clients", self.survey_clients, f"1 to {self.reports}, as reports"
            )
        table = self._asked(source)
        terms = self._terms(table, to.settings)
        drawn = Streams(to.seed).generator("clients").integers(len(table), size=self.reports)
        configs: _Configs = {COLLECTOR: {"role": "collector"}}
        files = dict[str, Callable[[Path], object]]()
        for number, name in enumerate(self.names):
            own = np.arange(number, self.reports, self.survey_clients)
            files[f"{name}.csv"] = partial(
                write_table,
                table=table.take(drawn[own]),
                ids=[f"client-{number}" for number in own.tolist()],
                key=KEY,
                labelled=bool(terms.classes),
                encoded=self.kind not in _OF_ONE_COLUMN,  # which is counted by its categories
            )
            configs[name] = {
                "role": "client",
                "protocol": {"name": terms.protocol.name},
                "collector": COLLECTOR,
                "key": KEY,
                "budget": self.epsilon,
            }
        write_folder(to.folder, terms, configs, files, port=to.port, request=SURVEY_REQUEST)
        return (
            to.serve(COLLECTOR),
            *(to.send("submit", name) for name in self.names),
            f"estimate {to.folder / COLLECTOR}.toml",
        )

    def _asked(self, source: Table) -> Table:
        """Return the columns that clients are asked for."""
        if self.kind not in _OF_ONE_COLUMN and self.column is None:
            return source
        columns = _columns(source)
        column = columns[0] if self.column is None and len(columns) == 1 else self.column
        if self.kind not in _OF_ONE_COLUMN or column is None:
            raise InputError.because(
                "--column is required with --kind frequency or words, unless the table has one"
                " column, and not allowed otherwise",
                field="--column",
            )
        return _only(source, column)

    def _terms(self, table: Table, settings: TermsSettings) -> SurveyTerms:
        features, ranges = table.features, table.features.ranges
        columns = [
            {"name": name, "low": low, "high": high, "agreed": is_public(table)}
            for name, low, high in zip(features.names, ranges.lows, ranges.highs, strict=True)
        ]
        if self.kind == "words":
            columns = [{"name": each.name} for each in columns_of(table)]
        elif self.kind == "frequency":
            columns = [each.model_dump(exclude_defaults=True) for each in columns_of(table)]
        classes = () if self.kind in _WITHOUT_CLASSES else features.classes
        minimum = min(self.reports, MINIMUM_REPORTS)
        tables = self.tables(settings, kind=self.kind, epsilon=self.epsilon, minimum=minimum)
        terms = SurveyTerms.of(classes=classes, features=columns, **tables).checked()
        if terms.protocol.minimum > self.reports:
            allowed = f"1 to {self.reports}, as reports"
            raise InputError("--minimum", terms.protocol.minimum, allowed)
        return terms


class PlacesExample(Example):
    """Write a trial deployment of a server of places and its client.

    Then start the server, and search near a place from another terminal:

        veilring deploy places places.csv --out atlas
        veilring serve atlas/server.toml
        veilring ask atlas/client.toml --near 37.7749,-122.4194 --epsilon 8
        veilring ledger show atlas/client.db

    The projection is the UTM zone around the places, accurate to a metre per kilometre.

    Attributes:
        latitude: The column with latitudes.
        longitude: The column with longitudes.
        budget: The maximum ε of all the client's searches together.
    """

    source = "CSV file with latitudes and longitudes."
    metavar = "PLACES"
    in_production = "In production each party makes its own key (`veilring keys new`)."
    draws = ""

    latitude: str = "lat"
    longitude: str = "lon"
    budget: float = _QUESTIONS * TreeWalk().epsilon

    @override
    def write(self, source: Path, to: NewDeployment) -> tuple[str, ...]:
        columns = {"latitude": self.latitude, "longitude": self.longitude}
        # the projection and the number of places are unknown until the places are read
        degrees = PlacesTerms.of(crs="EPSG:3857", places=2, **columns).read_degrees(source)
        found = {"crs": utm_around(degrees), "places": len(degrees), "area": Area.around(degrees)}
        terms = PlacesTerms.of(**columns | found | dict(to.settings))
        terms.projection.to_metres(degrees)
        configs: _Configs = {
            SERVER: {"role": "server", "rows": "places.csv"},
            CLIENT: {"role": "client", "ask": SERVER, "budget": self.budget},
        }
        files = {"places.csv": partial(shutil.copyfile, source)}
        write_folder(to.folder, terms, configs, files, port=to.port, request=PLACES_REQUEST)
        return (
            to.serve(SERVER),
            f"ask {to.folder / CLIENT}.toml --near LAT,LON --epsilon {TreeWalk().epsilon:g}",
            to.show(CLIENT),
        )


class VerifiedSumExample(Example):
    """Write a trial deployment of two aggregators, and of the collector of their totals.

    Clients report one value of a column each. Start both aggregators, and get the totals at any
    time:

        veilring deploy verified-sum wine --out sum
        veilring serve sum/leader.toml
        veilring serve sum/helper.toml
        veilring estimate sum/collector.toml

    Attributes:
        column: The column whose values to count; by default the label.
        epsilon: The ε of each report.
        minimum: The number of reports of a batch.
        budget: The ε that all batches together may cost at each aggregator.
    """

    in_production = (
        "In production each party makes its own keys, and clients reach both aggregators over"
        " HTTPS, with certificates that browsers trust."
    )
    ports = "Port of the leader; the helper, and both for clients, get the following ports."

    column: str | None = None
    epsilon: float = 1.0
    minimum: int = MINIMUM_REPORTS
    budget: float = 100.0

    @override
    def write(self, source: Table, to: NewDeployment) -> tuple[str, ...]:
        (feature,) = columns_of(_only(source, self.column or source.label_name))
        question = Question(
            name=feature.name,
            text=feature.name,
            answers=feature.categories or source.features.classes,
        )
        asked = Questionnaire(
            title=feature.name, epsilon=self.epsilon, minimum=self.minimum, questions=(question,)
        )
        return _write_sum(asked, self.budget, to)


class QuestionnaireExample(Example):
    """Write a trial deployment of a survey, from a file with its questions.

    With `trust = "one of two aggregators"`, people answer from a page:

        veilring deploy questionnaire questions.toml --out survey
        veilring survey page survey/terms.toml --client browser.js --out site
        veilring serve survey/leader.toml
        veilring serve survey/helper.toml
        veilring estimate survey/collector.toml

    With `trust = "nobody"`, a survey client reports the rows of a CSV file with a column for each
    question, as `veilring deploy survey` shows.

    Attributes:
        budget: The ε that all totals together may cost at each aggregator.
    """

    source = "TOML file with the questions."
    metavar = "QUESTIONS"
    in_production = VerifiedSumExample.in_production
    draws = ""
    ports = VerifiedSumExample.ports

    budget: float = VerifiedSumExample.model_fields["budget"].default

    @override
    def write(self, source: Path, to: NewDeployment) -> tuple[str, ...]:
        asked = Questionnaire.load(source)
        if warning := asked.warn(time.time()):
            _log.warning(warning)
        if asked.trust == AGGREGATED:
            return _write_sum(asked, self.budget, to)
        terms = SurveyTerms.of(**_overridden(asked.survey_tables, to.settings)).checked()
        name = f"{SURVEY_CLIENT}-0"
        client = {
            "role": "client",
            "protocol": {"name": terms.protocol.name},
            "collector": COLLECTOR,
            "key": ROW_NUMBER,
            "budget": terms.protocol.epsilon,
        }
        configs: _Configs = {COLLECTOR: {"role": "collector"}, name: client}
        write_folder(to.folder, terms, configs, {}, port=to.port, request=SURVEY_REQUEST)
        collector = to.folder / COLLECTOR
        submit = f"submit {to.folder / name}.toml ANSWERS.csv"
        return to.serve(COLLECTOR), submit, f"estimate {collector}.toml"


def _write_sum(asked: Questionnaire, budget: float, to: NewDeployment) -> tuple[str, ...]:
    """Write the deployment of two aggregators with the questions of a survey."""
    from veilring.deployment.aggregators import VerifiedSumTerms, totals_request  # noqa: PLC0415  (an extra, for these examples only)
    from veilring.protocols.prio.sealing import add_key  # noqa: PLC0415  (likewise)

    ports = {"leader": to.port + 2, "helper": to.port + 3}
    addresses = {role: f"http://{LOOPBACK}:{port}/" for role, port in ports.items()}
    tables = _overridden({"task": {**addresses, **asked.task}}, to.settings)
    terms = VerifiedSumTerms.of(**tables).checked()
    names = {role: str(getattr(terms.protocol, role)) for role in ports}
    configs: _Configs = {
        name: {"role": role, "keys": f"{name}.hpke", "port": ports[role], "budget": budget}
        for role, name in names.items()
    }
    configs[terms.protocol.collector] = {"role": "collector"}
    files: dict[str, Callable[[Path], object]] = {
        f"{name}.hpke": partial(add_key, now=time.time()) for name in names.values()
    }
    files["task.json"] = lambda path: path.write_bytes(terms.task.encoded)
    request = totals_request(terms)
    write_folder(to.folder, terms, configs, files, port=to.port, listening=2, request=request)
    return (
        *map(to.serve, names.values()),
        f"estimate {to.folder / terms.protocol.collector}.toml",
        to.show(names["leader"]),
    )


EXAMPLES: Final[Mapping[str, type[Example]]] = {
    "survey": SurveyExample,
    "owner": OwnerExample,
    "prediction": PredictionExample,
    "places": PlacesExample,
    "verified-sum": VerifiedSumExample,
    "questionnaire": QuestionnaireExample,
}
"""The examples by their names in `veilring deploy`. `write_peers` makes peers from a scenario
instead."""
