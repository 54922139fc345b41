"""The deployed leader and helper of a verified sum, and the collector of their totals."""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import Field
from typing_extensions import override

from veilring.config import Section, as_scenario_errors, require_key, require_key_that
from veilring.deployment.asking import Client
from veilring.deployment.config import (
    VERIFIED_SUM,
    AnAddress,
    BudgetAmount,
    Duty,
    FilePath,
    ServerConfig,
    StateConfig,
    Terms,
    TermsConfig,
    require_party,
)
from veilring.deployment.connecting import Meeting
from veilring.deployment.policy import Request
from veilring.deployment.start import Start, Step
from veilring.deployment.surveys.collector import EstimatedNumber
from veilring.deployment.surveys.questionnaire import Form
from veilring.errors import InputError, ScenarioError
from veilring.nodes.node import Node
from veilring.nodes.service import Offload, Threads
from veilring.privacy.budgets import Budgets
from veilring.privacy.files import as_store_failed
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger
from veilring.privacy.statefile import StateFile, open_state_file
from veilring.protocols.admission import Admission
from veilring.protocols.prio.aggregator import Helper, Leader, exchange_reports
from veilring.protocols.prio.dap import Ciphertext, decode_configs
from veilring.protocols.prio.exchange import summing_cost
from veilring.protocols.prio.hpke import KEY_BYTES as HPKE_BYTES
from veilring.protocols.prio.messages import AGGREGATORS_FORMAT
from veilring.protocols.prio.release import (
    Releases,
    half_width,
    noise_of,
    open_total,
    promise_of,
    require_room,
)
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.sealing import Keyring, load_keys, sealed_bytes
from veilring.protocols.prio.serving import Aggregator, HelperParty, LeaderParty, collecting
from veilring.protocols.prio.store import SHARES, ShareStore
from veilring.protocols.prio.task import Task
from veilring.protocols.prio.uploads import Door, Intake, unseal_with
from veilring.protocols.promise import Forecast, Promise
from veilring.randomness import Streams
from veilring.transport.handshake import FORMAT
from veilring.transport.tls import LOOPBACK

INTERVAL_CONFIDENCE: Final = 0.95
_log = logging.getLogger("veilring.aggregator")
_PORTS: Final = 65536


class VerifiedSumSection(Section):
    """The parties of a verified sum, by their names in the roster.

    Attributes:
        name: `prio`.
        leader: The aggregator to which clients upload.
        helper: The other aggregator.
        collector: The only member that gets totals.
    """

    name: Literal["prio"] = "prio"
    leader: str = Field("leader", description="the name of a party of the roster")
    helper: str = Field("helper", description="the name of a party of the roster")
    collector: str = Field("collector", description="the name of a member of the roster")


class VerifiedSumTerms(Terms):
    """The terms of a verified sum, equal for both aggregators and the collector.

    Attributes:
        protocol: The parties.
        task: The task of the clients: see `veilring.protocols.prio.task`.
    """

    protocol: VerifiedSumSection = VerifiedSumSection()
    task: Task

    @property
    @override
    def keys(self) -> dict[str, str]:
        return super().keys | {f"{VERIFIED_SUM} {FORMAT}": str(AGGREGATORS_FORMAT)}

    @property
    @override
    def tables(self) -> dict[str, Any]:
        return {"protocol": {"name": VERIFIED_SUM}} | super().tables

    @property
    def promise(self) -> Promise:
        """The guarantee of each client's report."""
        return promise_of(self.task)

    @property
    def cost(self) -> Forecast:
        """The cost of a batch of the minimum of reports, without uploads and set-up of sessions."""
        return summing_cost(self.task, self.task.minimum, self._sealed)

    @property
    def _sealed(self) -> int:
        """The size in bytes of a share that is encrypted to the helper."""
        _, share_bytes = scheme_of(self.task.vdaf).input_share_sizes
        return len(Ciphertext(0, bytes(HPKE_BYTES), bytes(sealed_bytes(share_bytes))).encode())

    @override
    def checked(self, parties: int | None = None) -> Self:
        super().checked(parties)
        roles = self.protocol
        named = (roles.leader, roles.helper, roles.collector)
        different = len(set(named)) == len(named)
        require_key(different, "protocol", ", ".join(named), "three different names")
        with as_scenario_errors({}, "task"):
            prio = scheme_of(self.task.vdaf)
            noise_of(self.task)
            require_room(self.task, prio)
            exchange_reports(prio, self._sealed)
        form = Form.of_terms(self.task.terms)
        if form is not None:  # the noise is made for people who answer these questions
            for key, due in (("vdaf", form.vdaf), ("norm", form.norm)):
                given = getattr(self.task, key)
                require_key(given == due, f"task.{key}", given, f"{due}, for these questions")
        return self


class AggregatorConfig(ServerConfig, StateConfig):
    """Base configuration of both aggregators.

    Attributes:
        budget: The ε that all batches together may cost; without one, there is no limit.
        amend: Whether to accept a changed budget; charges are kept.
        keys: The file with the keys to which clients seal their shares.
        clients: The address at which clients are answered; loopback by default, for a web server
            before it.
        port: The port for clients.
        certificate: The certificate for clients in PEM, with the intermediate ones after it; none
            if a web server before it has one.
        certificate_key: Its private key, in PEM.
    """

    budget: BudgetAmount | None = None
    amend: bool = False
    keys: FilePath
    clients: AnAddress = LOOPBACK
    port: int = Field(ge=0, lt=_PORTS)
    certificate: FilePath = ""
    certificate_key: FilePath = ""


class LeaderConfig(AggregatorConfig):
    """An aggregator to which clients upload their reports.

    Attributes:
        role: `leader`.
    """

    role: Literal["leader"]


class HelperConfig(AggregatorConfig):
    """An aggregator that verifies reports with its leader.

    Attributes:
        role: `helper`.
    """

    role: Literal["helper"]


class TotalsConfig(TermsConfig):
    """A collector of the totals of verified sums.

    Attributes:
        role: `collector`.
    """

    role: Literal["collector"]


class AggregatorStart(Start[AggregatorConfig]):
    """The checks at the start of an aggregator."""

    @cached_property
    def terms(self) -> VerifiedSumTerms:
        """The terms."""
        return VerifiedSumTerms.load(Path(self.config.terms))

    @cached_property
    def keyring(self) -> Keyring:
        """The keys to which clients seal shares."""
        try:
            return load_keys(Path(self.config.keys))
        except (OSError, InputError) as error:
            raise ScenarioError("keys", self.config.keys, f"a file of keys ({error})") from error

    @property
    @override
    def greeted(self) -> tuple[str, ...]:
        return (self.other,)

    @property
    def other(self) -> str:
        """The name of the other aggregator."""
        roles = self.terms.protocol
        return roles.helper if self.config.role == "leader" else roles.leader

    @property
    @override
    def keeps_trail(self) -> bool:
        return True

    @property
    @override
    def request(self) -> Request:
        return totals_request(self.terms)

    @override
    def files(self) -> Iterator[Step]:
        yield "roles", self._roles
        yield "promise", self._promise
        yield "keys", lambda: f"{len(decode_configs(self.keyring.advertised))} for new reports"
        yield "certificate", self._certificate
        yield "uploads", lambda: self.check_port(self.config.clients, self.config.port)
        yield "task", lambda: f"{self.terms.task.name}, closes {self.terms.task.closes or 'never'}"

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The certificate for clients, if there is one."""
        from veilring.deployment.surveys.upload import load_certificate  # noqa: PLC0415  (an extra, for aggregators only)

        config = self.config
        if not config.certificate:
            return None
        return load_certificate(Path(config.certificate), Path(config.certificate_key))

    def _promise(self) -> str:
        is_free = self.terms.promise.epsilon is None and self.config.budget is not None
        said = "exact totals spend no epsilon, so that no budget limits them; leave it out"
        require_key_that(not is_free, "budget", said)
        return f"{self.terms.promise.guarantee}; {self.terms.promise.threat_model}"

    def _certificate(self) -> str:
        return "clients come through a web server" if self.tls is None else self.config.certificate

    @override
    def renew(self, fresh: Self) -> Iterator[str]:
        from veilring.deployment.surveys.upload import renew_certificate  # noqa: PLC0415  (as above)

        if self.tls is not None and fresh.tls is not None:
            paths = Path(fresh.config.certificate), Path(fresh.config.certificate_key)
            renew_certificate(self.tls, *paths)
        if self.keyring.advertised != fresh.keyring.advertised:
            yield "the keys for clients are other ones"
        self.keyring.renew(fresh.keyring)

    def _roles(self) -> str:
        roles, roster = self.terms.protocol, self.server.roster
        mine = getattr(roles, self.config.role)
        said = f"the terms name {mine} as the {self.config.role}, and this key is of"
        require_key_that(self.server.name == mine, "role", f"{said} {self.server.name}")
        require_party(roster, f"protocol.{self.config.role}", mine)
        require_party(roster, "protocol", self.other)
        known = f"one of {', '.join(roster.names)}"
        is_known = roles.collector in roster.names
        require_key(is_known, "protocol.collector", roles.collector, known)
        return f"{roles.leader} leads, {roles.helper} helps, {roles.collector} gets the totals"

    @override
    def open_copy(self) -> bool:
        with open_state(self.config, self.terms, copy=True) as state:
            counts = state.store.counts()
            self.log.info("%s", state.ledger.totals())
            said = (f"{number:,} {verdict.reason}" for verdict, number in counts.items())
            self.log.info("reports: %s", "; ".join(said) or "none")
        return True


def totals_request(terms: VerifiedSumTerms) -> Request:
    """Return a collector's request for one total, for a policy."""
    return Request("", VERIFIED_SUM, parties=2, epsilon=terms.task.epsilon)


class State(NamedTuple):
    """The open state of an aggregator."""

    file: StateFile
    ledger: Ledger
    store: ShareStore


@contextmanager
def open_state(
    config: AggregatorConfig, terms: VerifiedSumTerms, *, new: bool = False, copy: bool = False
) -> Iterator[State]:
    """Open the state of an aggregator, or a copy in memory, or create it if asked."""
    path = Path(config.state)
    with as_scenario_errors({}, "budget"):
        budgets = Budgets("epsilon", config.budget)
    with as_store_failed(f"the {SHARES.name} failed", path):
        file = open_state_file(path, SHARES, LEDGER, new=new, copy=copy)
    with closing(file):
        is_leader = config.role == "leader"
        draw = partial(Streams().token, "verify") if is_leader else bytes
        store = ShareStore(file, terms.task, draw)
        with open_ledger(file, budgets, amend=config.amend) as ledger:
            yield State(file, ledger, store)


def begin_aggregator(config: AggregatorConfig) -> bool:
    """Create the state of an aggregator: see `begin_state` of `veilring.deployment.duties`."""
    with open_state(config, VerifiedSumTerms.load(Path(config.terms)), new=True):
        return True


async def serve_aggregator(
    config: AggregatorConfig, *, on_ready: Callable[[Aggregator], None] | None = None
) -> None:
    """Take part as a leader or a helper until cancelled.

    All files are read and checked first. Clients are answered at once, also while the other
    aggregator is missing; reports are verified as soon as it is connected.

    Args:
        on_ready: Called once both aggregators are connected.
    """
    start = AggregatorStart(config, _log)
    start.begin()
    with open_state(config, start.terms) as state:
        admission = start.admission(state.file)
        async with AsyncExitStack() as stack:
            offload = await stack.enter_async_context(Threads(1, "shares"))
            intake = await stack.enter_async_context(_clients(start, state.store))
            take_part = partial(_party, start, state, offload=offload, admission=admission)
            told = (state.ledger.totals, state.store.progress)
            meeting = start.server.meet(start.terms.keys, take_part, *told)
            met, party = await stack.enter_async_context(meeting)
            await _first_end(_take_part(met, party, on_ready), party, intake)


def _party(
    start: AggregatorStart, state: State, node: Node, *, offload: Offload, admission: Admission
) -> Aggregator:
    """Return the leader or the helper of a configuration."""
    terms, config = start.terms, start.config
    task, prio, roles = terms.task, scheme_of(terms.task.vdaf), terms.protocol
    releases = Releases(
        *(task, prio, state.store, state.ledger, task.epsilon or 0.0, noise_of(task)),
        partial(Streams().generator, "noise"),
    )
    counting = (task, prio, state.store, time.time)
    common = (releases, terms.digest, roles.collector, offload, config.limits, admission)
    if config.role == "leader":
        return LeaderParty(*common, leader=Leader(*counting), node=node, helper=roles.helper)
    helper = Helper(*counting, unseal_with(start.keyring, task, prio))
    return HelperParty(*common, helper=helper, leader=roles.leader)


@asynccontextmanager
async def _clients(start: AggregatorStart, store: ShareStore) -> AsyncIterator[Intake | None]:
    """Answer clients; yield where the uploads of a leader go."""
    from veilring.deployment.surveys.upload import Site, UploadServer  # noqa: PLC0415  (an extra, for aggregators only)

    config, task, keys = start.config, start.terms.task, start.keyring
    at = (config.clients, config.port)
    async with AsyncExitStack() as stack:
        intake, base = None, task.helper
        if config.role == "leader":
            door, base = Door(task, scheme_of(task.vdaf), keys), task.leader
            intake = Intake(door, store.add, time.time)
            await stack.enter_async_context(intake)
        await stack.enter_async_context(UploadServer(Site(task, base, keys, intake), at, start.tls))
        _log.info("%s answers clients of %s", start.server.name, base)
        yield intake


async def _take_part(
    met: Meeting, party: Aggregator, on_ready: Callable[[Aggregator], None] | None
) -> None:
    """Work with the other aggregator, once it is connected."""
    await met.all_here()
    _log.info("%s is ready", met.node.name)
    if on_ready is not None:
        on_ready(party)
    await met.stay(party.run() if isinstance(party, LeaderParty) else party.failure())


async def _first_end(
    takes_part: Coroutine[Any, Any, None], party: Aggregator, intake: Intake | None
) -> None:
    """Work until something fails, also before the other aggregator is there; raise the error."""
    work = [takes_part, party.failure()]
    if intake is not None:
        work.append(intake.failure())
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BatchTotal(NamedTuple):
    """The noisy total of one batch.

    Attributes:
        totals: One whole number for each entry, which the noise may make negative.
        margin: The half-width of the interval around each total.
    """

    number: int
    reports: int
    totals: list[int]
    margin: int


class Totals(NamedTuple):
    """The noisy totals of all batches that are closed."""

    task: Task
    batches: tuple[BatchTotal, ...]
    confidence: float

    @property
    def texts(self) -> dict[str, str]:
        """The text of each question by its name, if the task has questions."""
        form = Form.of_terms(self.task.terms)
        return {} if form is None else {each.name: each.text for each in form.questions}

    @property
    def estimates(self) -> tuple[EstimatedNumber, ...]:
        """The share of people with each answer, over all batches; none without questions.

        The noise of the batches adds up. Each interval holds for the people who answered.
        """
        form, reports = Form.of_terms(self.task.terms), sum(each.reports for each in self.batches)
        if form is None or not reports:
            return ()
        margin = half_width(noise_of(self.task), self.confidence, len(self.batches))
        totals = map(sum, zip(*(each.totals for each in self.batches), strict=True))
        return tuple(
            EstimatedNumber(
                *(entry.question, entry.answer, "", total / reports),
                *((total - margin) / reports, (total + margin) / reports, reports),
            )
            for entry, total in zip(form.entries, totals, strict=True)
        )


async def collect_totals(config: TotalsConfig, confidence: float = INTERVAL_CONFIDENCE) -> Totals:
    """Get the noisy totals of all closed batches.

    A batch costs its ε at each aggregator when it is collected first. Afterwards it costs nothing,
    and its total is the same.

    Raises:
        BudgetExhausted: If the budget of an aggregator does not suffice.
        Tampered: If the aggregators have different reports in a batch.
    """
    terms = VerifiedSumTerms.load(Path(config.terms))
    task, prio = terms.task, scheme_of(terms.task.vdaf)
    margin = half_width(noise_of(task), confidence)
    names = (terms.protocol.leader, terms.protocol.helper)
    batches = list[BatchTotal]()
    role = partial(collecting(terms.digest), prio=prio, price=task.epsilon or 0.0)
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(
                Client(config, server=name).connect(terms.keys, repeat="free")
            )
            for name in names
        ]
        while True:
            leader, helper = [await each.run(role, len(batches)) for each in connections]
            if leader.share is None or helper.share is None:
                break
            totals = open_total(prio, leader.share, helper.share, names=names)
            reports = leader.share.reports
            batches.append(BatchTotal(len(batches), reports, totals, margin))
    return Totals(task, tuple(batches), confidence)


_AGGREGATOR: Final = Duty(
    AggregatorConfig,
    serve=serve_aggregator,
    start=partial(AggregatorStart, log=_log),
    begin=begin_aggregator,
)
DUTIES: Final[Mapping[str, Duty]] = {
    "leader": replace(_AGGREGATOR, config=LeaderConfig),
    "helper": replace(_AGGREGATOR, config=HelperConfig),
    "collector": Duty(TotalsConfig, estimate=collect_totals),
}
"""The duties of the parties of a verified sum."""
