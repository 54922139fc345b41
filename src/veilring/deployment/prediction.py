"""The deployed prediction server: terms, files, server, client and records administrator."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Ints
from veilring.config import as_scenario_errors, require_key, require_key_that
from veilring.data.cells import Cells, Reading, Words
from veilring.data.columns import FeatureList, look_up
from veilring.data.npz import NPZ, Vectors, read_vectors
from veilring.data.schema import OUTSIDE_MAX, check_ranges
from veilring.deployment.asking import Client
from veilring.deployment.config import (
    AskingConfig,
    BudgetAmount,
    Duty,
    ReadingConfig,
    Schema,
    ServerConfig,
    StateConfig,
    TermsConfig,
    Unfinished,
    message_format,
    name_of,
)
from veilring.deployment.policy import Request
from veilring.deployment.start import Start, Step
from veilring.errors import BudgetExhausted, InputError, ScenarioError
from veilring.nodes.service import Threads, opening
from veilring.privacy.checks import doubt_of_delta, require
from veilring.protocols.prediction.algorithm.directions import quantise
from veilring.protocols.prediction.client import (
    add_at_server,
    forget_at_server,
    label_queries,
    make_request,
    request_status,
)
from veilring.protocols.prediction.messages import ServerRules
from veilring.protocols.prediction.records import LabelledRecords, require_ids
from veilring.protocols.prediction.server import ADD, FORGET, PREDICT, STATUS, PredictionServer
from veilring.protocols.prediction.state import ServerState, open_state
from veilring.protocols.prediction.system import IndKNN
from veilring.protocols.promise import Facts

_log = logging.getLogger("veilring.prediction")
_client_log = logging.getLogger("veilring.client")
_records_log = logging.getLogger("veilring.records")
# In one session: it takes seconds, far below the time limit.
PIECE_RECORDS_MAX: Final = 4096


class PredictionTerms(Schema):
    """The terms of a prediction server, and how a row becomes a direction.

    Either `features` describes the columns of a CSV file, or `dimensions` is the length of
    ready-made vectors in an .npz file, such as embeddings.

    Attributes:
        protocol: The service. With `queries = "auto"`, a stream has 1,000 queries.
        features: All columns except the label. Each is scaled to -1 to 1, or becomes one -1 or 1
            for each category, so directions start from the middle of all ranges.
        dimensions: The number of features of an embedding.
        origin: The origin of the directions of embeddings, one number for each feature: public, or
            a mean released with noise. Zero by default.
        origin_price: The price that each record has paid for an origin released with noise, in the
            unit of zCDP: 1 / σ² for `private_mean`. It is deducted from each record's budget. 0 for
            a public origin.
    """

    system: ClassVar[type[IndKNN]] = IndKNN
    protocol: IndKNN = IndKNN()
    features: FeatureList = ()
    dimensions: int = Field(0, ge=0, description="a whole number above 0, or features")
    origin: Annotated[
        tuple[float, ...], Field(strict=False, description="a list of numbers, or none")
    ] = ()
    origin_price: BudgetAmount = 0.0

    @property
    @override
    def width(self) -> int:
        return self.dimensions or super().width

    @property
    def schema_digest(self) -> bytes:
        """The SHA-256 of the conversion from rows to records, which stored records must match."""
        kept = self.model_dump(mode="json", exclude={"protocol", "origin_price"})
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).digest()

    @cached_property
    def rules(self) -> ServerRules:
        """The protocol's public rules."""
        facts = Facts(1, self.width, len(self.classes))  # embeddings have no schema
        return self.protocol.bind(facts, paid=self.origin_price)

    def directions(self, rows: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return rows in the form that the server uses.

        Args:
            rows: Embeddings, or columns scaled to 0 to 1, shape (rows, features).
        """
        if rows.shape[1:] != (self.width,):
            allowed = f"(rows, {self.width}), as the terms say"
            raise InputError.because(
                f"features has the shape {rows.shape}; it must be {allowed}", field="features"
            )
        if self.features:
            return quantise(2 * rows - 1)
        return quantise(rows, np.array(self.origin) if self.origin else None)

    @override
    def checked(self, parties: int | None = None) -> Self:
        if bool(self.features) == bool(self.dimensions):
            raise ScenarioError.because("give either dimensions or features", field="dimensions")
        if self.origin and (self.features or len(self.origin) != self.dimensions):
            raise ScenarioError.because(
                f"the origin has {len(self.origin)} numbers; give one for each dimension, and set"
                " `dimensions`",
                field="origin",
            )
        if self.origin_price and not self.origin:
            raise ScenarioError.because(
                "a price needs an origin; leave it out, or give the origin", field="origin_price"
            )
        super().checked(parties)
        keys = {"paid": "origin_price", "sigma1": "protocol.epsilon (which determines sigma1)"}
        with as_scenario_errors(keys, "protocol"):
            _ = self.rules  # which checks its arguments
        require_key_that(
            self.protocol.tau != "auto",
            "protocol.tau",
            'tau = "auto" needs the queries, which terms do not have; give a number from 0 to 1,'
            " found by `veilring tune` on public rows",
        )
        return self


def read_records(
    path: Path,
    terms: PredictionTerms,
    key: str,
    outside_max: float = OUTSIDE_MAX,
    log: logging.Logger = _log,
    *,
    reading: Reading | None = None,
) -> LabelledRecords:
    """Read records to add.

    Args:
        path: An .npz file with ids and labels if the terms have `dimensions`; otherwise a CSV file
            whose last column is the label.
        log: The log of how the records fit the ranges.
        reading: The particulars of a CSV file.
    """
    if terms.dimensions:
        held = _vectors(path)
        if held.ids is None:
            raise InputError.because(f"{path} lacks the array ids", field="file")
        return LabelledRecords.of(
            held.ids, terms.directions(held.features), _labels(path, held, terms)
        )
    cells = terms.read(path, reading, with_label=True)
    rows = terms.rows_of(cells)
    check_ranges(terms.features, cells, outside_max, log)
    require(key in cells, "key", key, f"a column of {path.name}")
    ids = [str(name) for name in cells[key].tolist()]
    return LabelledRecords.of(ids, terms.directions(rows.features), rows.labels)


def read_queries(
    path: Path, terms: PredictionTerms, config: AskingConfig
) -> tuple[NDArray[np.float32], dict[str, list[str]]]:
    """Read queries in the server's form, and the columns to put beside the answers."""
    if terms.dimensions:
        return terms.directions(_vectors(path).features), {}
    rows, kept = terms.asked(path, config, _client_log)
    return terms.directions(rows), kept


def read_ids(path: Path) -> list[str]:
    """Read ids from a text file, one on each line; empty lines are ignored."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--from", path, f"a text file in UTF-8 ({error})") from error
    return [line.strip() for line in lines if line.strip()]


def _vectors(path: Path) -> Vectors:
    if path.suffix.lower() != NPZ:
        raise InputError.because(
            f"the terms have dimensions, so {path} must be an .npz file", field="file"
        )
    held = read_vectors(path, "file")
    if not len(held.features):
        raise InputError.because(f"{path.name} has no rows; X needs at least one", field=path.name)
    return held


def _labels(path: Path, held: Vectors, terms: PredictionTerms) -> Ints:
    """Return the labels with the class numbers of the terms."""
    if held.labels is None:
        raise InputError.because(f"{path} lacks the array y", field="file")
    if held.class_names is not None:
        named = [held.class_names[label] for label in held.labels]
        return look_up(Cells(path.name, {"y": named}), "y", terms.classes)
    if held.labels.max(initial=0) >= len(terms.classes):
        allowed = f"class numbers from 0 to {len(terms.classes) - 1}"
        raise InputError.because(f"{path.name}: y must hold {allowed}", field=f"{path.name}, y")
    return held.labels


class PredictionServerConfig(ServerConfig, StateConfig):
    """A server that labels clients' queries with records from its administrators.

    Attributes:
        role: `server`.
        administrators: The members of the roster that may add and forget records.
    """

    renamed = MappingProxyType({**StateConfig.renamed, "curators": "administrators"})

    role: Literal["server"]
    administrators: Words = Field((), description="a list of names of the roster")


class PredictionStart(Start[PredictionServerConfig]):
    """The checks at the start of a prediction server."""

    @cached_property
    def terms(self) -> PredictionTerms:
        """The terms."""
        return PredictionTerms.load(Path(self.config.terms))

    @property
    @override
    def request(self) -> Request:
        return prediction_request(self.terms)

    @override
    def files(self) -> Iterator[Step]:
        yield "administrators", self._administrators
        yield "delta", self._delta

    def _administrators(self) -> str:
        named = self.config.administrators
        strangers = sorted(set(named) - set(self.server.roster.names))
        if strangers:
            raise ScenarioError.because(
                f"{', '.join(strangers)} are not members of the roster", field="administrators"
            )
        return ", ".join(named) or "none"

    def _delta(self) -> str:
        delta = self.terms.protocol.delta
        if doubt := doubt_of_delta(delta):
            self.log.warning("protocol.%s", doubt)
        return f"{delta:g}"

    @override
    def open_copy(self) -> bool:
        _open(self.config, self.terms, copy=True).close()
        return True


async def serve_prediction(
    config: PredictionServerConfig, *, on_ready: Callable[[PredictionServer], None] | None = None
) -> None:
    """Answer, add and forget until cancelled.

    All files are read and checked first. When cancelled, the server finishes its current work and
    shuts down in order; a client without an answer can repeat its request without paying twice.

    Args:
        on_ready: Called once the server answers queries.
    """
    start = PredictionStart(config, _log)
    start.begin()
    terms = start.terms
    with _open(config, terms) as state:
        admission = start.admission(state.file)
        # One thread, because each answer depends on the charges of the one before.
        async with Threads(1, "predictions") as offload:
            predicting = PredictionServer(state, offload, config.administrators, admission)
            offers = predicting.offers(terms.digest)
            kept = f"{len(state):,} records, {state.answered:,} queries answered"
            async with start.server.listen(
                offers, terms=terms.keys, kept=kept, totals=state.totals
            ):
                if on_ready is not None:
                    on_ready(predicting)
                await predicting.failure()


def prediction_request(terms: PredictionTerms) -> Request:
    """Return a request under the terms, for a policy; one ε covers all requests."""
    return Request("", name_of(IndKNN), epsilon=terms.protocol.epsilon)


def begin_server(config: PredictionServerConfig) -> bool:
    """Create the state of a server: see `begin_state` of `veilring.deployment.duties`."""
    _open(config, PredictionTerms.load(Path(config.terms)), new=True).close()
    return True


def _open(
    config: PredictionServerConfig, terms: PredictionTerms, *, new: bool = False, copy: bool = False
) -> ServerState:
    path, schema = Path(config.state), terms.schema_digest
    try:
        return open_state(terms.rules, path, schema, new=new, copy=copy)
    except InputError as error:
        raise ScenarioError.of(error, f"state ({error.field})") from error


class PredictionClientConfig(AskingConfig):
    """A client that has rows labelled by a prediction server.

    Attributes:
        role: `client`.
        ask: The server, which sees the queries.
        block: The number of queries sent at once; by default the maximum.
        name: The name of the request; with a new name, the same queries are answered and charged
            again.
    """

    role: Literal["client"]
    block: int = Field(0, ge=0, description="a whole number of at least 1, or 0 for the maximum")
    name: str = Field("", description="a text, or nothing")


async def ask_prediction(config: PredictionClientConfig, queries: Path) -> dict[str, list[str]]:
    """Get the rows of a file labelled, block by block.

    A block's key follows from its content: repeating a failed command returns the same labels, and
    answered blocks cost nothing. The remaining length of the stream is checked first, so a file
    that is too long costs nothing.

    Returns:
        The kept columns, and the name of the class of each row, in order: the column `label`.

    Raises:
        BudgetExhausted: If the stream has fewer queries left. Nothing was sent or spent.
        Unfinished: If the stream is too short, but the first rows are paid for, now or earlier.
    """
    client = Client(config)
    terms = PredictionTerms.load(Path(config.terms))
    (rows, kept), rules = read_queries(queries, terms, config), terms.rules
    require_key(config.block <= rules.fitting, "block", config.block, f"at most {rules.fitting}")
    if not len(rows):
        raise InputError.because("the file has no queries; at least one is needed", field="queries")
    block, labels = config.block or rules.fitting, list[str]()
    parts = [rows[first : first + block] for first in range(0, len(rows), block)]
    keys = [make_request(part, name=config.name).key for part in parts]
    # the ledger answers an equal block
    async with client.connect(terms.keys, repeat="free") as connection:
        role = opening(label_queries, PREDICT, terms.digest)
        status = opening(request_status, STATUS, terms.digest)
        left, answered = await connection.run(status, keys)
        refusal = _refusal(parts, answered, left, rules)
        paid = parts if refusal is None else parts[: [*answered, False].index(False)]
        try:
            # a session for each block, so that no session takes too long
            for part in paid:
                found = await connection.run(role, part, rules=rules, block=block, name=config.name)
                labels += [terms.classes[label] for label in found]
        except BudgetExhausted as error:  # other clients have asked meanwhile
            refusal = error
    if refusal is not None:
        first = {name: column[: len(labels)] for name, column in kept.items()}
        raise Unfinished({**first, "label": labels}, len(rows), refusal) if labels else refusal
    return {**kept, "label": labels}


def _refusal(
    parts: Sequence[NDArray[np.float32]], answered: Sequence[bool], left: int, rules: ServerRules
) -> BudgetExhausted | None:
    """Return the reason why the remaining blocks cannot all be answered, or none if they can."""
    asked = sum(len(part) for part, was in zip(parts, answered, strict=True) if not was)
    if asked <= left:
        return None
    budget = "analyst" if rules.system.clients == "apart" else "total"
    error = BudgetExhausted(budget, asked, left, "queries")
    error.add_note(f"Nothing was sent or spent. Ask for at most {left:,} new rows.")
    return error


class RecordsAdministratorConfig(TermsConfig, ReadingConfig):
    """Configuration of the records administrator, who adds and removes records.

    Attributes:
        role: `administrator`.
        server: The prediction server.
        key: The column of a CSV file that identifies a row's owner.
    """

    role: Literal["administrator"]
    server: str = Field(description="the name of a party of the roster")
    key: str = Field("id", description="the header of a column")


async def add_records(config: RecordsAdministratorConfig, path: Path) -> int:
    """Add the records of a file, each with a fresh or its remaining budget.

    Returns:
        The number of new records.

    Raises:
        VeilringError: If the server failed; repeating the call continues it.
    """
    terms = PredictionTerms.load(Path(config.terms))
    records = read_records(
        path, terms, config.key, config.outside_max, _records_log, reading=config.particulars
    )
    pieces = [records.take(range(*piece)) for piece in _pieces(len(records))]
    return await _tell(config, opening(add_at_server, ADD, terms.digest), pieces)


async def forget_records(config: RecordsAdministratorConfig, ids: Sequence[str]) -> int:
    """Forget records: they are gone when this returns.

    Args:
        ids: The ids, once each.

    Returns:
        The number of records that existed.

    Raises:
        VeilringError: If the server failed; repeating the call continues it.
    """
    require_ids(ids)
    terms = PredictionTerms.load(Path(config.terms))
    pieces = [tuple(ids[slice(*piece)]) for piece in _pieces(len(ids))]
    return await _tell(config, opening(forget_at_server, FORGET, terms.digest), pieces)


async def _tell(
    config: RecordsAdministratorConfig,
    role: Callable[..., Awaitable[int]],
    pieces: Sequence[LabelledRecords] | Sequence[tuple[str, ...]],
) -> int:
    changed = 0
    async with Client(config, "server").connect(message_format(IndKNN)) as connection:
        for piece in pieces:
            changed += await connection.run(role, piece)
    return changed


def _pieces(count: int) -> list[tuple[int, int]]:
    step = PIECE_RECORDS_MAX
    return [(first, min(first + step, count)) for first in range(0, count, step)]


DUTIES: Final[Mapping[str, Duty]] = {
    "server": Duty(
        PredictionServerConfig,
        serve=serve_prediction,
        start=partial(PredictionStart, log=_log),
        begin=begin_server,
    ),
    "client": Duty(PredictionClientConfig, ask=ask_prediction),
    "administrator": Duty(RecordsAdministratorConfig),
}
"""The duties of a prediction server, its clients and its records administrators."""
