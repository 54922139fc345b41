"""Trial deployments of a server and its clients: data owner, prediction server, places."""

import shutil
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from typing_extensions import override

from veilring.data.npz import NPZ
from veilring.data.table import Table
from veilring.deployment.examples.example import BATCHES, Example, NewDeployment, hold_out, numbered
from veilring.deployment.examples.folder import (
    CLIENT,
    OWNER,
    REGISTRAR,
    Configs,
    dealt,
    write_folder,
    write_table,
)
from veilring.deployment.owner import OwnerTerms, owner_request
from veilring.deployment.places import PLACES_REQUEST, Area, PlacesTerms, utm_around
from veilring.deployment.prediction import PredictionTerms, prediction_request
from veilring.errors import InputError
from veilring.privacy.budgets import Budgets
from veilring.protocols.prediction.algorithm.directions import Kernel, public_tau, tau_share
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.radius.owner import ask_nearest, ask_within
from veilring.protocols.radius.system import DataOwner
from veilring.protocols.system import SERVER
from veilring.protocols.treewalk.system import TreeWalk

# The system's own ε gives poor answers on tables this small: on digits, 0.54 of the queries are
# labelled correctly at 1 and 0.93 at 3.
_PREDICTION_EPSILON: Final = 3.0
_TAU_DECIMALS: Final = 2  # digits of a number meant to be read and changed
# More queries than any example has: the length of a stream is declared, and cannot depend on them.
_STREAM: Final = 500
# The number of questions that a places client may ask at the system's ε: enough to try it out and
# to see that they add up.
_QUESTIONS: Final = 5


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
        rows, queries = hold_out(source, to.seed, clients=self.analysts, option="--analysts")
        public = len(rows) if self.radius is None and self.k is None else None
        tables = {"rows": public} | self.tables(to.settings, epsilon=self.epsilon)
        terms = OwnerTerms.of_table(source, **tables).checked()
        self._check(terms)
        names = numbered("analyst", self.analysts)
        owner = {"role": "server", "rows": f"{OWNER}.csv", "budgets": self.budgets}
        radius = "auto" if self.radius is None else self.radius
        asked = {"radius": radius} if self.k is None else {"k": self.k}
        analyst = {"role": "client", "ask": OWNER, "epsilon": self.epsilon, **asked}
        files = {f"{OWNER}.csv": partial(write_table, table=rows)} | dealt(names, queries)
        configs: Configs = {OWNER: owner, **dict.fromkeys(names, analyst)}
        write_folder(to.folder, terms, configs, files, port=to.port, request=owner_request(terms))
        return (to.serve(OWNER), *(to.send("ask", name) for name in names), to.show(OWNER))

    @property
    def budgets(self) -> dict[str, float]:
        """The table `budgets` of the owner's configuration."""
        each = BATCHES * self.epsilon
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
        rows, queries = hold_out(source, to.seed, clients=self.clients, option="--clients")
        terms = _with_tau(PredictionTerms.of_table(source, **tables), queries, len(rows)).checked()
        names = numbered("client", self.clients)
        ids = numbered("record", len(rows))
        answered = terms.rules.queries * (self.clients if self.apart else 1)
        queries = queries.take(np.arange(min(len(queries), answered)))
        client = {"role": "client", "ask": SERVER}
        configs: Configs = {
            SERVER: {"role": "server", "administrators": [REGISTRAR]},
            REGISTRAR: {"role": "administrator", "server": SERVER},
            **dict.fromkeys(names, client),
        }
        files = dealt(names, queries, ending)
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
        configs: Configs = {
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
