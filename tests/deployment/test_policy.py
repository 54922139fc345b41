"""The policies of parties: decisions, durable counts, and the errors of clients."""

import contextlib
import datetime as dt
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deployment.commands import PARTIES, SECONDS, Command, Deploy, Deployment
from tests.deployment.members import all_served
from tests.deployment.test_peers import written

from veilring.deployment import asking
from veilring.deployment.duties import begin_state, load_config
from veilring.deployment.gate import USAGE, open_admission
from veilring.deployment.policy import (
    Decision,
    Policy,
    Request,
    Usage,
    decide,
    describe_outcome,
    read_policy,
)
from veilring.errors import (
    NotReady,
    PolicyRefused,
    ScenarioError,
    SessionAborted,
    StoreFailed,
    VeilringError,
)
from veilring.nodes.party import Party
from veilring.privacy.budgets import Budgets, Charge
from veilring.privacy.ledger import LEDGER, Ledger, open_ledger
from veilring.privacy.statefile import open_state_file
from veilring.protocols.admission import Admission, Asked
from veilring.protocols.noisyvotes.system import NoisyVotes
from veilring.protocols.peers import PeerMember
from veilring.protocols.ranksearch.system import RankSearch
from veilring.protocols.release.system import Release
from veilring.protocols.ring.system import PrivateKNN
from veilring.protocols.system import System

NOON: Final = dt.datetime(2026, 11, 28, 12, 0, tzinfo=dt.UTC)
ASKED: Final = Request("clerk", "rank-search", "votes", 5, 3, 100, 10, 0.5)
UNITS: Final = 10**12


@pytest.mark.parametrize(
    ("limits", "used", "decision"),
    [
        ({}, {}, ("", "")),
        ({"clients": ("ann",)}, {}, ("who", "clients: clerk is not among ann")),
        ({"clients": ()}, {}, ("who", "clients: clerk is not among nobody")),
        ({"clients": ("ann", "clerk")}, {}, ("", "")),
        (
            {"systems": ("release",)},
            {},
            ("what", 'systems: rank-search; the policy says ["release"]'),
        ),
        ({"reveal": "label"}, {}, ("what", "reveal: votes; the policy says label")),
        ({"reveal": "votes"}, {}, ("", "")),
        ({"reveal": "totals"}, {}, ("", "")),
        ({"k": 6}, {}, ("what", "k: 5; the policy says 6")),
        ({"parties": 4}, {}, ("what", "parties: 3; the policy says 4")),
        ({"rows": 101}, {}, ("what", "rows: 100; the policy says 101")),
        ({"k": 5, "parties": 3, "rows": 100}, {}, ("", "")),
        (
            {"hours": "07:00-12:00"},
            {},
            ("when", "hours: it is 12:00, outside of 07:00-12:00 (UTC)"),
        ),
        ({"hours": "12:00-12:01"}, {}, ("", "")),
        ({"hours": "22:00-12:01"}, {}, ("", "")),
        ({"hours": "09:00-09:00"}, {}, ("", "")),
        (
            {"queries_hour": 12},
            {"queries_hour": 3},
            ("amount", "queries_hour: 3 of 12 are used, and 10 are asked"),
        ),
        ({"queries_day": 12}, {"queries_day": 2}, ("", "")),
        ({"queries_total": 9}, {}, ("amount", "queries_total: 0 of 9 are used, and 10 are asked")),
        ({"epsilon": 0.4}, {}, ("amount", "epsilon: 0 of 0.4 is spent, and 0.5 is asked")),
        (
            {"epsilon_day": 1.0},
            {"units_day": 6 * UNITS // 10},
            ("amount", "epsilon_day: 0.6 of 1 is spent, and 0.5 is asked"),
        ),
        ({"epsilon_total": 1.0}, {"units_total": UNITS // 2}, ("", "")),
        (
            {"member": {"clerk": {"queries_day": 9}}, "queries_day": 0},
            {},
            ("amount", "member.clerk.queries_day: 0 of 9 are used, and 10 are asked"),
        ),
        ({"member": {"ann": {"queries_day": 9}}}, {}, ("", "")),
    ],
)
def test_a_decision_names_the_first_rule_that_refuses(
    limits: dict[str, Any], used: dict[str, int], decision: tuple[str, str]
) -> None:
    """A limit that is reached exactly still allows; hours may go past midnight."""
    policy = Policy.model_validate(limits)
    assert decide(policy, ASKED, Usage(**used), NOON) == Decision(*decision)


def test_a_table_limits_a_client_or_the_member_that_asks_for_it() -> None:
    """A request needs room in both, and a limit of ε refuses a system without one."""
    policy = Policy.model_validate(
        {"member": {"clerk": {"epsilon": 1.0}, "bob": {"queries_day": 9}}}
    )
    asked = ASKED._replace(queries=4, peer="bob")
    bob = {"bob": Usage(queries_day=6)}
    assert decide(policy, asked, Usage(), NOON, bob).rule.startswith(
        "member.bob.queries_day: 6 of 9"
    )
    assert decide(policy, asked._replace(peer="ada"), Usage(), NOON, bob).about == ""
    unbounded = decide(policy, asked._replace(epsilon=None), Usage(), NOON)
    assert unbounded.rule == "epsilon: no ε bounds rank-search; the policy limits ε"


def test_a_limit_of_epsilon_refuses_a_system_without_one() -> None:
    """Nothing bounds what such a system reveals, so that no limit is small enough."""
    refused = decide(Policy(epsilon_total=100.0), ASKED._replace(epsilon=None), Usage(), NOON)
    assert refused == ("what", "epsilon: no ε bounds rank-search; the policy limits ε")


def test_a_stored_answer_needs_only_the_right_client_and_hour() -> None:
    """It has no new queries, and spends nothing."""
    again = ASKED._replace(queries=0, epsilon=0.0)
    spent = Usage(9, 9, 9, 9 * UNITS, 9 * UNITS)
    policy = Policy(queries_hour=1, queries_day=1, queries_total=1, epsilon=0.1, epsilon_day=0.1)
    assert decide(policy, again, spent, NOON) == ("", "")


COUNTS: Final = ("queries_hour", "queries_day", "queries_total")
AMOUNTS: Final = ("epsilon", "epsilon_day", "epsilon_total")
LEAST: Final = ("k", "parties", "rows")
REVEALED: Final = ("totals", "votes", "label")
NAMES: Final = st.lists(st.sampled_from(["ann", "bob", "clerk"]), unique=True).map(tuple)
SYSTEMS: Final = st.lists(st.sampled_from(["rank-search", "release"]), unique=True).map(tuple)
HOURS: Final = st.sampled_from(["00:00-06:00", "06:00-18:00", "18:00-06:00", "12:00-12:01"])
OWN: Final = st.fixed_dictionaries({}, optional=dict.fromkeys(COUNTS, st.integers(0, 8)))
LIMITS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "member": st.dictionaries(st.sampled_from(["ann", "bob", "clerk"]), OWN),
    "clients": NAMES,
    "systems": SYSTEMS,
    "reveal": st.sampled_from(REVEALED),
    "hours": HOURS,
    **dict.fromkeys(COUNTS, st.integers(0, 8)),
    **dict.fromkeys(AMOUNTS, st.floats(0, 4)),
    **dict.fromkeys(LEAST, st.integers(1, 6)),
}
POLICIES: Final = st.fixed_dictionaries({}, optional=LIMITS)
REQUESTS: Final = st.builds(
    Request,
    client=st.sampled_from(["", "ann", "clerk"]),
    system=st.sampled_from(["rank-search", "release"]),
    reveal=st.sampled_from([None, *REVEALED]),
    k=st.none() | st.integers(1, 6),
    parties=st.integers(1, 6),
    rows=st.none() | st.integers(1, 6),
    queries=st.integers(0, 6),
    epsilon=st.none() | st.floats(0, 4),
    peer=st.sampled_from(["", "bob"]),
)
USAGES: Final = st.builds(
    Usage, *[st.integers(0, 6)] * 3, *[st.integers(0, 3).map(UNITS.__mul__)] * 2
)
MEMBERS: Final = st.dictionaries(st.sampled_from(["ann", "bob", "clerk"]), USAGES)
TIMES: Final = st.integers(0, 24 * 60 - 1).map(lambda minute: NOON + dt.timedelta(minutes=minute))


def narrower(limits: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return a policy that sets all limits of both; of two hours it has the first."""
    found = others | limits
    for key in limits.keys() & others.keys() - {"hours"}:
        one, two = limits[key], others[key]
        if key == "reveal":
            found[key] = max(one, two, key=REVEALED.index)
        elif key in {"clients", "systems"}:
            found[key] = tuple(name for name in one if name in two)
        elif key == "member":
            found[key] = {
                name: narrower(one.get(name, {}), two.get(name, {})) for name in one | two
            }
        else:
            found[key] = (max if key in LEAST else min)(one, two)
    return found


@given(POLICIES, POLICIES, REQUESTS, USAGES, TIMES, MEMBERS)
def test_a_stricter_policy_allows_nothing_more(  # noqa: PLR0917  (what a decision depends on)
    limits: dict[str, Any],
    others: dict[str, Any],
    request: Request,
    usage: Usage,
    now: dt.datetime,
    members: dict[str, Usage],
) -> None:
    """Whatever a policy refuses, every policy with smaller limits and fewer names refuses, too."""
    strict, policy = map(Policy.model_validate, (narrower(limits, others), limits))
    if not decide(strict, request, usage, now, members).about:
        assert decide(policy, request, usage, now, members).about == ""


@given(POLICIES, REQUESTS, USAGES, USAGES, TIMES)
def test_more_usage_allows_nothing_more(
    limits: dict[str, Any], request: Request, usage: Usage, added: Usage, now: dt.datetime
) -> None:
    """What is refused now is refused after further requests at the same time."""
    more = Usage(*map(sum, zip(usage, added, strict=True)))
    policy = Policy.model_validate(limits)
    if not decide(policy, request, more, now, {"clerk": more, "bob": more}).about:
        assert decide(policy, request, usage, now, {"clerk": usage, "bob": usage}).about == ""


class _Party:
    """The part of a server that an admission needs."""

    name = "ada"

    def __init__(self) -> None:
        self.roster = _Roster()
        self.now = NOON

    def clock(self) -> dt.datetime:
        """Return the time."""
        return self.now


class _Roster:
    names = ("ada", "bob", "clerk")


TERMS: Final = Request("", "noisy-votes", k=5, parties=3, epsilon=0.5)


@contextmanager
def admitting(
    folder: Path, text: str, party: _Party | None = None
) -> Iterator[tuple[Admission, Ledger]]:
    """Open the admission of a party whose policy has this text, and its ledger."""
    (folder / "policy.toml").write_text(text)
    path = folder / "ada.db"
    file = open_state_file(path, LEDGER, new=not path.exists())
    with closing(file), open_ledger(file, Budgets(total=10.0)) as ledger:
        server: Any = party or _Party()
        policy = read_policy(str(folder / "policy.toml"), TERMS, server.roster.names)
        yield open_admission(server, policy, TERMS, logging.getLogger("ada"), file=file), ledger


def test_a_check_tells_who_may_ask_what() -> None:
    """The outcome of policy and terms names each client that is refused, with the rule."""
    now = dt.datetime(2026, 1, 5, 9, tzinfo=dt.UTC)
    policy = Policy.model_validate(
        {"clients": ["clerk"], "queries_day": 60, "hours": "07:00-18:00"}
    )
    said = describe_outcome(policy, TERMS, ("bob", "clerk"), now)
    assert said.startswith(
        "clerk may ask noisy-votes, k = 5, ε = 0.5 each, queries_day = 60; bob is"
    )
    assert "clients" in said
    own = Policy.model_validate(
        {"queries_day": 60, "member": {"clerk": {"queries_day": 3}, "bob": {"queries_total": 0}}}
    )
    said = describe_outcome(own, TERMS, ("bob", "clerk"), now)
    assert said == (
        "clerk may ask noisy-votes, k = 5, ε = 0.5 each, queries_day = 60; clerk at most"
        " queries_day = 3; bob is refused: member.bob.queries_total: 0 of 0 are used, and 1 are"
        " asked"
    )
    late = describe_outcome(policy, TERMS, ("clerk",), now.replace(hour=20))
    assert late.startswith("nobody may ask")
    assert "hours" in late
    assert "as far as the terms allow" in describe_outcome(None, TERMS, ("clerk",), now)


def pay(ledger: Ledger, admission: Admission, key: str, queries: int = 4) -> None:
    """Charge a request, and count it in the same transaction."""
    with admission(Asked("clerk", queries)) as admitted:
        ledger.charge(Charge("clerk", key, b"", b"", 0.5), admitted.count)


def test_counts_outlive_the_process_and_end_with_their_time(tmp_path: Path) -> None:
    """An hour and a day are those of the clock in UTC; the total never ends."""
    text, party = "queries_hour = 8\nqueries_day = 12\nepsilon_total = 2.0", _Party()
    with admitting(tmp_path, text, party) as (admission, ledger):
        pay(ledger, admission, "1")
        pay(ledger, admission, "2")
    with admitting(tmp_path, text, party) as (admission, ledger):
        with pytest.raises(PolicyRefused, match="queries_hour: 8 of 8"):
            pay(ledger, admission, "3")
        party.now += dt.timedelta(hours=1)
        pay(ledger, admission, "3")
        with pytest.raises(PolicyRefused, match="queries_day: 12 of 12"):
            pay(ledger, admission, "4")
        party.now += dt.timedelta(hours=11)
        pay(ledger, admission, "4")
        party.now += dt.timedelta(days=400)
        with pytest.raises(PolicyRefused, match="epsilon_total: 2 of 2 is spent"):
            pay(ledger, admission, "5")


def test_each_member_has_its_own_counts(tmp_path: Path) -> None:
    """They outlive the process, and a member that asks for others is counted by its own name.

    A false name of a client uses up no more than the limit of the member that gives it.
    """
    text, party = "[member.clerk]\nqueries_day = 8\n[member.bob]\nqueries_total = 10", _Party()
    for client, queries, peer in (("clerk", 4, ""), ("clerk", 4, "bob"), ("ada", 6, "bob")):
        asked = Asked(client, queries, peer=peer)
        with admitting(tmp_path, text, party) as (admission, _), admission(asked) as one:
            one.count()
    with admitting(tmp_path, text, party) as (admission, _):
        for asked, rule in (
            (Asked("clerk", 1), "member.clerk.queries_day: 8 of 8"),
            (Asked("ada", 1, peer="bob"), "member.bob.queries_total: 10 of 10"),
        ):
            with pytest.raises(PolicyRefused, match=rule), admission(asked):
                pass
        with admission(Asked("ada", 99)) as one:
            one.count()
        party.now += dt.timedelta(days=1)
        with (
            admission(Asked("clerk", 5)),
            pytest.raises(PolicyRefused, match="5 of 8 are used, and 4"),
            admission(Asked("clerk", 4)),
        ):
            pass


def test_requests_in_progress_are_reserved(tmp_path: Path) -> None:
    """Two requests at once cannot both use what is left for one; one that fails uses nothing."""
    with admitting(tmp_path, "queries_total = 4") as (admission, ledger), ExitStack() as stack:
        stack.enter_context(admission(Asked("clerk", 3)))
        with pytest.raises(PolicyRefused, match="queries_total: 3 of 4"):
            pay(ledger, admission, "1")
        stack.close()
        pay(ledger, admission, "1")


def test_a_repeated_charge_is_counted_once(tmp_path: Path) -> None:
    """The ledger knows the request, so nothing is added."""
    with admitting(tmp_path, "queries_total = 8") as (admission, ledger):
        pay(ledger, admission, "1")
        pay(ledger, admission, "1")
        pay(ledger, admission, "2")


def test_a_ledger_gets_the_section_of_counts_once(tmp_path: Path) -> None:
    """A policy may come later: charges stay, and the counts are sealed like them."""
    path = tmp_path / "ada.db"
    with open_ledger(path, Budgets(total=10.0), new=True) as ledger:
        ledger.charge(Charge("clerk", "0", b"", b"", 0.5))
    with admitting(tmp_path, "queries_total = 8") as (admission, ledger):
        pay(ledger, admission, "1")
        assert ledger.totals().spent == 1.0
    with open_ledger(path, Budgets(total=10.0)) as ledger:  # without a policy again
        assert ledger.totals().spent == 1.0
    with closing(open_state_file(path, LEDGER, USAGE)) as file:
        (row,) = file.connection.execute("SELECT queries, units FROM usage").fetchall()
        assert row == (4, UNITS // 2)
        file.connection.execute("DROP TRIGGER usage_UPDATE")
        with file.transaction() as connection:
            connection.execute("UPDATE usage SET queries = 0")
    with pytest.raises(StoreFailed, match="its rows are not those that were written"):
        open_state_file(path, LEDGER)


def die(folder: Path, words: tuple[str, ...], _output: Path) -> None:
    """Charge a request, and lose power within the transaction, or after it without an answer."""
    with (
        admitting(folder, "queries_total = 8") as (admission, ledger),
        admission(Asked("clerk", 4)) as admitted,
    ):

        def count_and_die(connection: Any) -> None:
            admitted.count(connection)
            if words == ("within",):
                os.kill(os.getpid(), signal.SIGKILL)

        ledger.charge(Charge("clerk", "1", b"", b"", 0.5), count_and_die)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("when", "counted"), [("within", 0), ("after", 4)])
def test_a_kill_counts_a_request_as_often_as_it_charges_it(
    tmp_path: Path, when: str, counted: int
) -> None:
    """The count is a part of the charge: both are there or neither, and a repetition adds none."""
    with admitting(tmp_path, "queries_total = 8"):
        pass
    killed = Command(tmp_path, when, output=tmp_path / "out", body=die).wait(SECONDS)
    assert killed == -signal.SIGKILL
    for _ in range(2):
        with closing(open_state_file(tmp_path / "ada.db", LEDGER, USAGE)) as file:
            row = file.connection.execute("SELECT total(queries), total(units) FROM usage")
            assert row.fetchone() == (counted, counted * UNITS / 8)
            spent = open_ledger(file, Budgets(total=10.0)).totals().spent
            assert spent == counted / 8
        counted = 4
        with admitting(tmp_path, "queries_total = 8") as (admission, ledger):
            pay(ledger, admission, "1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('clients = ["eve"]', "policy.clients: there is no eve; allowed: ada, bob, clerk"),
        ('systems = ["knn"]', "policy.systems: there is no knn"),
        (
            "[member.eve]\nqueries_day = 1",
            "policy.member: there is no eve; allowed: ada, bob, clerk",
        ),
        ('hours = "25:00-26:00"', "hours is '25:00-26:00'; allowed: two times of day in UTC"),
        (
            "[member.bob]\nquery_day = 1",
            r"member.bob.query_day: .* allowed: queries_hour, .*\(did you mean queries_day\?\)",
        ),
        ("k = 7", "it refuses every request under these terms: k: 5; the policy says 7"),
        ("epsilon = 0.4", "terms: epsilon: 0 of 0.4 is spent, and 0.5 is asked"),
        ("quieries_day = 4", r"there is no such key.*\(did you mean queries_day\?\)"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, text: str, message: str
) -> None:
    """The party does not start, instead of refusing every request."""
    with pytest.raises(ScenarioError, match=message), admitting(tmp_path, text):
        pass


def test_a_changed_policy_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start logs the policy, or its changes since the last start."""
    caplog.set_level(logging.INFO)
    for text in (
        "queries_day = 5\nk = 5",
        "queries_day = 5\nk = 5",
        "queries_day = 9\nclients = []",
    ):
        with admitting(tmp_path, text):
            pass
    said = [record.getMessage() for record in caplog.records if record.name == "ada"]
    changes = "clients: nothing → []; k: 5 → nothing; queries_day: 5 → 9"
    listed = "the policy of ada: k = 5, queries_day = 5"
    changed = f"the policy of ada has changed since its last start: {changes}"
    assert said == [listed, listed, changed]


def restrict(deployment: Deployment, name: str, text: str) -> None:
    """Give a party another policy."""
    (deployment.folder / f"{name}.policy.toml").write_text(text)


async def test_a_member_refuses_by_its_policy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log has the exact rule, and the client learns only its subject.

    Counts of a system without an ε outlive a restart; queries that were refused do not count.
    """
    caplog.set_level(logging.INFO)
    ring = written(tmp_path / "ring", PrivateKNN())
    restrict(ring, "party-1", "queries_total = 5")
    async with all_served(ring.folder) as served:
        await served.labels(0, 3)
        with pytest.raises(SessionAborted) as refused:
            await served.labels(3, 6)
    asked = refused.value
    assert (asked.by, asked.reason, asked.culprit) == ("party-0", "PolicyRefused.amount", "party-1")
    assert "the policy of party-1 limits how much may be asked" in str(asked)
    assert "queries_total" not in str(asked)
    rule = "the policy of party-1 refuses it: queries_total: 3 of 5 are used, and 3 are asked"
    assert rule in caplog.text
    ring.edit("party-2.toml", 'policy = "party-2.policy.toml"', "")
    async with all_served(ring.folder) as served:
        with pytest.raises(SessionAborted, match=r"PolicyRefused.amount, blaming party-1"):
            await served.labels(3, 6)
        await served.labels(3, 5)
        await served.end("party-0")
        restrict(ring, "party-0", 'clients = ["party-1"]')
        await served.serve("party-0")
        with pytest.raises(SessionAborted, match="the policy of party-0 does not let this client"):
            await served.labels(3, 4)
    assert "party-2 has no policy: it takes part in everything that the terms allow" in caplog.text
    assert "clients: client is not among party-1" in caplog.text


async def test_nobody_pays_for_a_refused_request(tmp_path: Path) -> None:
    """The refusal comes before any member is charged, and each learns which client asks."""
    votes = written(tmp_path / "votes", NoisyVotes(epsilon=1.0, radius=0.3), 10.0)
    restrict(votes, "party-2", 'clients = ["party-0"]')
    async with all_served(votes.folder) as served:
        with pytest.raises(SessionAborted, match="the policy of party-2 does not let this client"):
            await served.labels(0, 3)
        assert served.spent() == [0.0] * 3
        await served.end("party-2")
        restrict(votes, "party-2", 'clients = ["client"]\nepsilon_total = 1.0')
        await served.serve("party-2")
        first = await served.labels(0, 3)
        assert await served.labels(0, 3) == first  # which is stored at the member that was asked
        with pytest.raises(SessionAborted, match=r"PolicyRefused.amount, blaming party-2"):
            await served.labels(3, 6)
        assert served.spent() == [1.0] * 3


async def test_a_release_is_made_once_by_the_policies_of_all(tmp_path: Path) -> None:
    """It is one query at each member; a stored release is none, and is given to any client."""
    release = written(tmp_path / "release", Release(epsilon=1.0), 10.0)
    for name in PARTIES[1:]:
        restrict(release, name, 'queries_total = 1\nclients = ["party-0"]')
    async with all_served(release.folder) as served:
        first = await served.labels(0, 3)
        assert await served.labels(0, 3) == first
        assert served.spent() == [1.0] * 3
        release.edit("client.toml", "party-0", "party-2")
        with pytest.raises(SessionAborted, match="the policy of party-2 does not let this client"):
            await served.labels(0, 3)
    release.edit("client.toml", "party-2", "party-0")
    release.edit("terms.toml", "[protocol]", 'edition = "2"\n[protocol]')
    async with all_served(release.folder) as served:
        with pytest.raises(SessionAborted, match=r"PolicyRefused.amount, blaming party-1"):
            await served.labels(0, 3)
        assert served.spent() == [1.0] * 3


@pytest.mark.parametrize("system", [PrivateKNN(), RankSearch(), NoisyVotes(radius=0.3)])
@pytest.mark.parametrize("announced", [1, 2**63])
async def test_a_batch_has_the_announced_number_of_queries(
    tmp_path: Path, system: System, announced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that announces another number than it sends is accused before anybody pays.

    A number that no batch may have is not even counted, and ends no member.
    """
    told = PeerMember._lead  # noqa: SLF001  (the asked member's part)

    async def lead(member: PeerMember, party: Party, *, asked: Asked, **given: Any) -> Any:
        return await told(member, party, asked=asked._replace(queries=announced), **given)

    monkeypatch.setattr(PeerMember, "_lead", lead)
    budget = 10.0 if system.is_bounded() else None
    folder = written(tmp_path / "peers", system, budget).folder
    async with all_served(folder) as served:
        with pytest.raises(VeilringError):
            await served.labels(0, 3)
        assert budget is None or served.spent() == [0.0] * 3
        monkeypatch.undo()
        assert len(await served.labels(0, 1)) == 1


async def test_no_client_asks_again_on_the_word_of_another_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that breaks off after the others have paid cannot make them pay again."""
    play = PeerMember.play

    async def broken(member: PeerMember, party: Party, **given: Any) -> Any:
        await play(member, party, **given)
        raise NotReady("party-1", "party-2")

    votes = written(tmp_path / "votes", NoisyVotes(epsilon=1.0, radius=0.3), 10.0)
    async with all_served(votes.folder) as served:
        liar = served.members["party-1"]

        async def chosen(member: PeerMember, party: Party, **given: Any) -> Any:
            return await (broken if member is liar else play)(member, party, **given)

        monkeypatch.setattr(PeerMember, "play", chosen)
        monkeypatch.setattr(asking, "REPEAT_PAUSES", (0.0,) * 4)
        for _ in range(2):
            with contextlib.suppress(SessionAborted):
                await served.labels(0, 3)
        assert served.spent()[2] in {1.0, 2.0}


def test_an_owner_counts_new_queries_once(deploy: Deploy) -> None:
    """A repeated request is stored and costs nothing, and counts outlive a kill."""
    owner = deploy("owner", "--radius=0.2")
    restrict(owner, "owner", "queries_total = 20\nepsilon = 1.0")
    owner.serve("owner")
    first = owner.call("ask", "analyst-0.toml", "analyst-0.csv").stdout  # 19 queries
    owner.kill()
    owner.serve("owner")
    assert owner.call("ask", "analyst-0.toml", "analyst-0.csv").stdout == first
    refused = owner.call("ask", "analyst-1.toml", "analyst-1.csv", code=1)
    assert "the policy of owner limits how much may be asked" in refused.stderr
    assert "queries_total: 19 of 20 are used, and 19 are asked" in owner.log("owner")
    assert owner.totals("owner").spent == 1.0
    restrict(owner, "owner", "k = 3")
    owner.end_in_order()
    owner.serve("owner")
    refused = owner.call("ask", "analyst-1.toml", "analyst-1.csv", code=1)
    assert "does not allow what was asked" in refused.stderr
    assert "k: 0; the policy says 3" in owner.log("owner")


@pytest.mark.parametrize(
    ("system", "server", "words"),
    [
        ("prediction", "server", ("ask", "client-0.toml", "client-0.csv")),
        ("survey", "collector", ("submit", "survey-client-0.toml", "survey-client-0.csv")),
        ("places", "server", ("ask", "client.toml", "--near=37.72,-122.38", "--epsilon=8")),
    ],
)
def test_every_server_decides_who_asks(
    deploy: Deploy, system: str, server: str, words: tuple[str, ...]
) -> None:
    """A client that the policy does not name gets nothing, and its log is general."""
    deployed = deploy(system)
    restrict(deployed, server, f'clients = ["{server}"]')
    deployed.serve(server)
    refused = deployed.call(*words, code=1)
    assert f"the policy of {server} does not let this client ask" in refused.stderr
    name = words[1].removesuffix(".toml")
    assert f"clients: {name} is not among {server}" in deployed.log(server)


def test_the_written_policies_are_valid(tmp_path: Path) -> None:
    """Each party gets one, and may add it to a state that exists."""
    folder = written(tmp_path / "ring", PrivateKNN()).folder
    for name in PARTIES:
        config: Any = load_config(folder / f"{name}.toml")
        assert config.policy == str(folder / f"{name}.policy.toml")
        with pytest.raises(Exception, match="already"):
            begin_state(config)
