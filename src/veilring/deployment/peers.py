"""A deployment in which all parties hold rows: terms, members, and clients.

It supports every system with a `membership`, including those of other packages. If an ε is spent,
each member charges a ledger of its own: for each batch of queries, or once for a result that
answers all of them. A trusted owner is a deployment with one party.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from veilring.arrays import Floats, Ints
from veilring.config import as_scenario_errors, require_key, require_key_that
from veilring.data.table import Rows
from veilring.deployment.asking import Client, Repeat
from veilring.deployment.config import (
    STATISTICS,
    AskingConfig,
    BudgetAmount,
    Duty,
    FilePath,
    ReadingConfig,
    Schema,
    ServerConfig,
    StateConfig,
    Terms,
    load_credentials,
    name_of,
    read_terms,
)
from veilring.deployment.gate import USAGE
from veilring.deployment.policy import Request
from veilring.deployment.start import Start, Step
from veilring.errors import InputError, ScenarioError
from veilring.nodes.node import Node
from veilring.nodes.party import Parties
from veilring.privacy.budgets import AMOUNT_MAX, Budgets, to_units
from veilring.privacy.files import as_store_failed
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger
from veilring.privacy.statefile import Section, StateFile, open_state_file
from veilring.protocols.digests import digest_of, digest_of_names
from veilring.protocols.membership import Membership, Once, PublicModel
from veilring.protocols.once import OnceMember, result_client
from veilring.protocols.peers import PeerMember, Till, peer_client
from veilring.protocols.promise import Facts, Promise
from veilring.protocols.registry import Protocol, default_system, model_naming
from veilring.protocols.system import PARTIES, System
from veilring.transport.roster import Roster

_log = logging.getLogger("veilring.member")
_client_log = logging.getLogger("veilring.client")
Member = PeerMember | OnceMember
"""A party of such a deployment."""


class MemberTerms(Terms, ABC):
    """The terms of parties that all hold rows and answer together.

    Attributes:
        edition: The name of this version of the parties' rows. Changed rows are released, or
            queries repeated, under a new name, and charged again.
        budget: The total ε that each party may spend over the lifetime of its ledger, for a system
            that spends any.
    """

    edition: str = "1"
    budget: float | None = Field(None, gt=0, le=AMOUNT_MAX)

    @abstractmethod
    def membership(self, parties: int, *, count: str = "roster") -> Membership:
        """Return how a party takes part among the given number of parties."""

    @abstractmethod
    def promise(self, parties: int) -> Promise:
        """Return the guarantee of a batch, or of the result that answers all queries."""

    @abstractmethod
    def facts(self, parties: int) -> Facts:
        """Return the public facts about the data of the given number of parties."""

    @abstractmethod
    def read_own(self, config: "MemberConfig", parties: int) -> tuple[Rows | None, object]:
        """Return a party's rows, or what it keeps of them, after checking its file."""

    def content(self, parties: Parties) -> bytes:
        """Return the terms that identify a result: all except the budget."""
        said = {key: value for key, value in self.tables.items() if key != "budget"}
        text = json.dumps(said, sort_keys=True)
        return digest_of(digest_of_names(parties), text.encode())

    def request(self, parties: int) -> Request:
        """Return a request under these terms, for the policy of a party.

        Args:
            parties: The number of parties. Those that may be lost are not counted.
        """
        once, system = self.membership(parties).once, getattr(self, "protocol", None)
        k = getattr(system, "k", None)
        return Request(
            "",
            STATISTICS if self.system is None else name_of(self.system),
            reveal=getattr(system, "reveal", None),
            k=k if isinstance(k, int) and k else None,  # 0 if a radius was chosen
            parties=parties - (0 if once is None else once.spare),
            rows=self.facts(parties).rows,
            epsilon=self.promise(parties).epsilon,
        )

    def check_budget(self, name: str, promise: Promise) -> None:
        """Refuse a budget that does not fit the price of a system with this name."""
        if promise.epsilon is None:
            message = f"{name} spends no epsilon; leave it out"
            require_key_that(self.budget is None, "budget", message)
            return
        costs = f"the {promise.epsilon:.12g} epsilon that a {promise.unit} costs"
        if self.budget is None:
            raise ScenarioError.because(
                f"{name} spends epsilon; set the total that each party may spend to at least"
                f" {costs}",
                field="budget",
            )
        require_key(self.budget >= promise.epsilon, "budget", self.budget, f"at least {costs}")


class PeerTerms(Schema, MemberTerms):
    """The terms of parties that label queries together, or of an owner of all rows.

    Attributes:
        protocol: The system and its parameters, as in a scenario.
        rows: The number of rows of all parties together, for a system in which it is public.
    """

    protocol: Protocol = Field(default_factory=default_system)
    rows: int | None = Field(None, ge=1)

    @classmethod
    @override
    def load(cls, path: Path, parties: int | None = None) -> Self:
        tables = read_terms(path)
        return model_naming(cls, tables).of(**tables).checked(parties)

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        usual = 1 if self.protocol.has_owner else PARTIES
        number = usual if parties is None else parties
        self.membership(number)
        self.check_budget(self.protocol.name, self.promise(number))
        return self

    @property
    @override
    def system(self) -> type[System]:
        return type(self.protocol)

    @override
    def facts(self, parties: int, rows: int | None = None) -> Facts:
        return super().facts(parties, self.rows if rows is None else rows)

    @override
    def membership(self, parties: int, *, count: str = "roster") -> Membership:
        system = self.protocol
        with as_scenario_errors({"parties": count, "rows": "rows"}, "protocol"):
            membership = system.membership(self.facts(parties))
        if membership is None:
            allowed = (
                "a system in which all parties hold rows, for the roles member and client;"
                " `veilring deploy --help` lists the commands for other systems"
            )
            raise ScenarioError("protocol.name", system.name, allowed)
        return membership

    @override
    def promise(self, parties: int) -> Promise:
        return self.protocol.promise_about(self.facts(parties))

    @override
    def read_own(self, config: "MemberConfig", parties: int) -> tuple[Rows, None]:
        path = Path(config.rows)
        own = self.read_rows(
            path, config.outside_max, _log, config.particulars, may_be_empty=parties > 1
        )
        return own, None


class MemberConfig(ServerConfig, StateConfig, ReadingConfig):
    """A party that holds rows and answers together with all others.

    Attributes:
        role: `member`.
        rows: The CSV file with this party's own rows; the label is its last column.
        client: The ε that each client may spend at this party; by default the budget in the terms.
        clients: The ε of individual clients, by name.
        amend: Whether to accept a changed budget; charges are kept.
        trail: Whether to keep a trail; a party with a policy, and one whose system keeps other
            state, keeps one without it.
    """

    role: Literal["member"]
    rows: FilePath
    client: BudgetAmount | None = None
    clients: Mapping[str, BudgetAmount] = Field({}, description="a table of names and numbers")
    amend: bool = False
    trail: bool = False


class ClientConfig(AskingConfig):
    """A client that has queries labelled.

    Attributes:
        role: `client`.
        ask: The member to query, which sees the queries; in most systems all members do.
    """

    role: Literal["client"]


class MemberStart(Start[MemberConfig]):
    """The checks at the start of a member.

    Args:
        kind: The model of the terms.
    """

    def __init__(self, config: MemberConfig, kind: type[MemberTerms] = PeerTerms) -> None:
        super().__init__(config, _log)
        self._kind = kind

    @cached_property
    def parties(self) -> Parties:
        """The members."""
        return Parties(self.server.roster.parties)

    @cached_property
    def terms(self) -> MemberTerms:
        """The terms."""
        return self._kind.load(Path(self.config.terms), len(self.parties))

    @cached_property
    def own(self) -> tuple[Rows | None, object]:
        """Its rows, or what it keeps of them."""
        return self.terms.read_own(self.config, len(self.parties))

    @property
    @override
    def greeted(self) -> tuple[str, ...]:
        return tuple(name for name in self.parties if name != self.server.name)

    @property
    @override
    def request(self) -> Request:
        return self.terms.request(len(self.parties))

    @property
    @override
    def keeps_trail(self) -> bool:
        return bool(_sections(self.config, self.terms, len(self.parties)))

    @override
    def files(self) -> Iterator[Step]:
        yield "rows", lambda: self.own
        yield "clients", lambda: _budgets(self.config, self.terms.budget, self.server.roster)

    @override
    def open_copy(self) -> bool:
        with _open_state(self.config, self.terms, self.server.roster, copy=True) as state:
            if state.till is not None:
                self.log.info("%s", state.till.ledger.totals())
            membership = self.terms.membership(len(self.parties))
            if membership.memory is not None:
                membership.keep(self.own[0], state.file)
            return state.file is not None


async def serve_member(
    config: MemberConfig,
    *,
    on_ready: Callable[[Member], None] | None = None,
    kind: type[MemberTerms] = PeerTerms,
) -> None:
    """Take part as a member until cancelled.

    All files are read and checked first; then the member waits for the others, and answers. Until
    all are connected it refuses requests, and names the missing parties. A lost member is dialled
    again, and takes part in later requests.

    A cancelled member shuts down in order, even while it is waiting: it notifies its peers, and the
    open sessions end at all parties.

    Args:
        on_ready: Called once all members are connected.
        kind: The model of the terms.

    Raises:
        HandshakeError: If a member is missing after a day.
    """
    start = MemberStart(config, kind)
    start.begin()
    parties, terms, (rows, kept) = start.parties, start.terms, start.own
    membership, facts = terms.membership(len(parties)), terms.facts(len(parties))

    with _open_state(config, terms, start.server.roster) as (file, till):
        totals = None if till is None else till.ledger.totals
        admission = start.admission(file)
        if membership.memory is not None:
            kept = membership.keep(rows, file)

        def take_part(node: Node) -> Member:
            member = PeerMember(
                *(node, rows, parties, membership, facts, terms.digest, config.limits, till, kept),
                admission=admission,
            )
            if membership.once is None or till is None:
                return member
            return OnceMember(member, membership.once, till, terms.content(parties))

        async with start.server.meet(terms.keys, take_part, totals) as (met, member):
            await met.all_here()
            _log.info("%s is ready", met.node.name)
            if on_ready is not None:
                on_ready(member)
            await met.stay(member.failure())


def begin_member(config: MemberConfig, *, kind: type[MemberTerms] = PeerTerms) -> bool:
    """Create the state of a member, if its system needs any.

    See `begin_state` of `veilring.deployment.duties`.
    """
    _, roster = load_credentials(config)
    terms = kind.load(Path(config.terms), len(roster.parties))
    with _open_state(config, terms, roster, new=True) as state:
        return state.file is not None


def _sections(config: MemberConfig, terms: MemberTerms, parties: int) -> tuple[Section, ...]:
    """Return the sections of a member's state, the first of which names it; none without state."""
    membership = terms.membership(parties)
    pays = terms.promise(parties).epsilon is not None or membership.once is not None
    memory = () if membership.memory is None else (membership.memory,)
    used = (LEDGER, *memory) if pays else memory
    return used or (USAGE,) * (config.trail or bool(config.policy))


class _State(NamedTuple):
    """The open state of a member: the file, and the ledger in it, if its system needs them."""

    file: StateFile | None = None
    till: Till | None = None


@contextmanager
def _open_state(
    config: MemberConfig,
    terms: MemberTerms,
    roster: Roster,
    *,
    new: bool = False,
    copy: bool = False,
) -> Iterator[_State]:
    """Open the state of a member, or a copy in memory, or create it if asked."""
    parties = len(roster.parties)
    membership, promise = terms.membership(parties), terms.promise(parties)
    budgets = _budgets(config, terms.budget, roster)
    sections = _sections(config, terms, parties)
    pays = LEDGER in sections
    if not pays and (config.client is not None or config.clients):
        raise ScenarioError.because("this system spends no epsilon; leave it out", field="client")
    if not sections:
        yield _State()
        return
    path = Path(config.state)
    with as_store_failed(f"the {sections[0].name} failed", path):
        file = open_state_file(path, *sections, new=new, copy=copy)
    with closing(file):
        if not pays:
            yield _State(file)
            return
        with open_ledger(file, budgets, amend=config.amend) as ledger:
            _log_delta(ledger, promise)
            till = Till(ledger, promise.epsilon or 0.0, terms.digest, promise.delta)
            till.make_room(0 if membership.once is None else membership.once.size)
            yield _State(file, till)


def _log_delta(ledger: Ledger, promise: Promise) -> None:
    """Log the δ, which has no budget: the probabilities add up over payments."""
    totals = ledger.totals()
    if not promise.epsilon or totals.left is None or not promise.delta:
        return
    most = int(to_units(totals.left) // to_units(promise.epsilon))
    line = "these terms allow at most %d more payments, to a total of epsilon %g and delta %g"
    spent, delta = totals.spent + most * promise.epsilon, totals.delta + most * promise.delta
    _log.info(line, most, spent, delta)


def _budgets(config: MemberConfig, total: float | None, roster: Roster) -> Budgets:
    strangers = sorted(set(config.clients) - (set(roster.names) - set(roster.parties)))
    if strangers:
        raise ScenarioError.because(
            f"{', '.join(strangers)} are not clients of the roster", field="clients"
        )
    each = dict(config.clients)
    if config.client is not None and total is not None:  # which limits clients, not parties
        each |= dict.fromkeys(roster.parties, total)
    try:
        return Budgets("epsilon", total, config.client, each)
    except InputError as error:
        key = error.field.replace("analyst", "client", 1)
        raise ScenarioError.of(error, key) from error


async def ask_member(config: ClientConfig, queries: Path) -> dict[str, list[str]]:
    """Get the rows of a CSV file labelled by a party and its peers.

    A batch takes as many messages as one query; its size is limited by the terms and by a message.
    If an ε is spent, each batch is charged, unless the queried member has its labels already.

    If one result answers all queries, the client fetches only the result, and the queries stay
    local.

    Returns:
        The kept columns, and the name of the class or the predicted number of each row, in order:
        the column `label`.

    Raises:
        BudgetExhausted: If a member's budget is insufficient.
    """
    client = Client(config)
    parties = len(client.roster.parties)
    terms = PeerTerms.load(Path(config.terms), parties)
    membership = terms.membership(parties)
    features, kept = terms.asked(queries, config, _client_log)
    if membership.once is not None:
        result = await fetch_result(client, terms, membership.once)
        labels = membership.labels(result, features)
    else:
        labels = await _ask_batches(client, terms, features, membership)
    return {**kept, "label": list(map(str, terms.encoded.named(labels)))}


async def fetch_model(config: ClientConfig) -> PublicModel:
    """Return the model that the parties release, which they make now if necessary.

    Raises:
        BudgetExhausted: If a member's budget is insufficient.
    """
    client = Client(config)
    parties = len(client.roster.parties)
    terms = PeerTerms.load(Path(config.terms), parties)
    once = terms.membership(parties).once
    if once is None or once.model is None:
        raise ScenarioError.because(
            "these parties label queries and release no model; give a file of queries",
            field="terms",
        )
    return once.model(await fetch_result(client, terms, once))


async def _ask_batches(
    client: Client, terms: PeerTerms, features: Floats, membership: Membership
) -> Ints:
    size = membership.batch_max
    price = terms.promise(len(client.roster.parties)).epsilon or 0.0
    role = peer_client(terms.digest, terms.encoded.label_count, price)
    labels = np.zeros(len(features), dtype=np.int64)
    async with client.connect(terms.keys, repeat="unbegun") as connection:
        for first in range(0, len(features), size):
            batch = slice(first, first + size)
            labels[batch] = await connection.run(role, features[batch])
    return labels


async def fetch_result(client: Client, terms: MemberTerms, once: Once) -> Any:  # noqa: ANN401  (the system's own)
    """Return the party's result, which it makes now with its peers if necessary."""
    price = terms.promise(len(client.roster.parties)).epsilon or 0.0
    repeat: Repeat = "unbegun" if price else "free"  # the same rows have the same totals
    async with client.connect(terms.keys, repeat=repeat) as connection:
        return await connection.run(result_client(terms.digest, once, price))


DUTIES: Final[Mapping[str, Duty]] = {
    "member": Duty(MemberConfig, serve=serve_member, start=MemberStart, begin=begin_member),
    "client": Duty(ClientConfig, ask=ask_member, model=fetch_model),
}
"""The duties of a system in which all parties hold rows."""
