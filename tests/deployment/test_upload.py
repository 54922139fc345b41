"""The HTTP server for clients of a verified sum."""

import asyncio
import json
import logging
import random
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientResponse, ClientSession
from tests.deployment.hostile_uploads import (
    ATTACKS,
    CLOSES,
    HIDDEN,
    UPLOADS,
    Forger,
    check,
    run,
    send,
)
from tests.deployment.uploading import PATH, Serving, serving, write_certificate
from tests.protocols.prio.reports import PRECISION, VDAFS, Aggregators, make_task

from veilring.deployment.surveys import upload
from veilring.deployment.surveys.upload import (
    URN,
    Site,
    UploadServer,
    load_certificate,
    renew_certificate,
)
from veilring.errors import InputError, StoreFailed
from veilring.protocols import intake
from veilring.protocols.prio.dap import REPORT_MEDIA_TYPE
from veilring.protocols.prio.sealing import CACHE_SECONDS
from veilring.protocols.prio.store import Added, Upload
from veilring.protocols.prio.uploads import Door
from veilring.transport.tls import LOOPBACK

TYPE: Final = {"Content-Type": REPORT_MEDIA_TYPE}


async def put(session: ClientSession, site: Serving, body: bytes) -> tuple[int, dict[str, Any]]:
    """Upload bytes; return the status and the problem document, if there is one."""
    async with session.put(site.upload_url, data=body, headers=TYPE) as response:
        return response.status, await document_of(response)


async def document_of(response: ClientResponse) -> dict[str, Any]:
    """Return the problem document of an answer, after checks that hold for each."""
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    if response.status < 400:
        return {}
    assert response.content_type == "application/problem+json"
    assert response.headers["Cache-Control"] == "no-store"
    document: dict[str, Any] = json.loads(await response.read())
    assert document["status"] == response.status
    assert document["title"]
    return document


async def test_clients_learn_the_keys_of_both_aggregators() -> None:
    """Each aggregator advertises its keys in use, to be cached for a day."""
    async with serving() as site, ClientSession() as session:
        parties, task = site.parties, site.parties.task
        for base, keys in ((task.leader, parties.leader), (task.helper, parties.helper)):
            async with session.get(f"{base}hpke_config?task_id={task.name}") as response:
                assert response.status == 200
                assert response.content_type == "application/dap-hpke-config-list"
                assert response.headers["Cache-Control"] == f"max-age={CACHE_SECONDS}"
                assert response.headers["Access-Control-Allow-Origin"] == "*"
                assert await response.read() == keys.advertised


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "missingTaskID"),
        ("?task_id=", "missingTaskID"),
        ("?task_id=x", "unrecognizedTask"),
        (f"?task_id={'A' * 43}", "unrecognizedTask"),
    ],
)
async def test_keys_are_those_of_a_task(query: str, problem: str) -> None:
    """A request for keys names the task; the problem document repeats the id of another task."""
    async with serving() as site, ClientSession() as session:
        async with session.get(f"{site.parties.task.helper}hpke_config{query}") as response:
            assert response.status == 400
            document = await document_of(response)
        assert document["type"] == f"{URN}{problem}"
        assert document.get("taskid", "") == ("A" * 43 if "AA" in query else "")


async def test_a_helper_takes_no_upload() -> None:
    """An upload to the helper is answered like any unknown address."""
    async with serving() as site, ClientSession() as session:
        url = f"{site.parties.task.helper}tasks/{site.parties.task.name}/reports"
        async with session.put(url, data=b"", headers=TYPE) as response:
            assert response.status == 404
            await document_of(response)


async def test_an_upload_is_stored_once() -> None:
    """A report is accepted as often as it is sent, and stored once."""
    async with serving() as site, ClientSession() as session:
        report = site.parties.report(1).encode()
        assert [await put(session, site, report) for _ in range(3)] == [(201, {})] * 3
        assert site.parties.totals() == ([1], 0)


async def test_another_report_with_the_same_id_is_rejected() -> None:
    """Other bytes under a stored id are refused, and the stored report stays."""
    async with serving() as site, ClientSession() as session:
        report = site.parties.report(1)
        other = replace(report, helper=replace(report.helper, config_id=77))
        assert (await put(session, site, report.encode()))[0] == 201
        status, document = await put(session, site, other.encode())
        assert (status, document["type"]) == (400, f"{URN}reportRejected")
        assert document["taskid"] == site.parties.task.name
        assert site.parties.totals() == ([1], 0)


async def test_each_hostile_upload_is_refused() -> None:
    """Each kind of forged request gets the problem document that it deserves; none is stored."""
    async with serving(closes=CLOSES) as site, ClientSession() as session:
        forger = Forger(site.parties, random.Random(1))
        for name, attack in ATTACKS.items():
            # no joint randomness, and so no public share, in a count
            if not name.startswith("public share"):
                check(attack, *await send(session, site, attack.make(forger)))
        assert site.parties.stored() == []


async def test_a_forged_proof_is_stored_and_never_counted() -> None:
    """Reports that only the helper can see to be invalid are accepted, and not in the total."""
    async with serving(VDAFS["histogram"]) as site, ClientSession() as session:
        forger = Forger(site.parties, random.Random(2))
        for make in HIDDEN.values():
            assert await send(session, site, make(forger)) == (201, {})
        await put(session, site, forger.report().encode())
        assert site.parties.totals() == ([0, 1, 0, 0, 0, 0, 0, 0, 0, 0], len(HIDDEN))


async def test_honest_reports_count_among_hostile_ones() -> None:
    """A sample of the thousands: see `tests.deployment.hostile_uploads`."""
    answers = await run(100, seed=3)
    assert answers["honest reports, each sent twice"] == 2


@pytest.mark.slow
async def test_thousands_of_hostile_uploads() -> None:
    """Each gets its problem document, none is counted, and the memory of the server stays flat."""
    await run(UPLOADS, seed=1)


@pytest.mark.parametrize(("behind", "status"), [(-1, 201), (0, 400), (PRECISION, 400)])
async def test_a_task_ends(behind: int, status: int) -> None:
    """From its end on, by the leader's clock, a task takes no report, of whatever time."""
    async with serving(now=lambda: CLOSES + behind, closes=CLOSES) as site, ClientSession() as s:
        found, document = await put(s, site, site.parties.report(1).encode())
        assert found == status
        assert document.get("type", URN).startswith(URN)


async def test_a_page_of_any_origin_may_upload() -> None:
    """A browser's question is answered with the method and the type of an upload."""
    async with serving() as site, ClientSession() as session:
        asked = {
            "Origin": "https://page.example",
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "content-type",
        }
        async with session.options(site.upload_url, headers=asked) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert response.headers["Access-Control-Allow-Methods"] == "PUT"
            assert "content-type" in response.headers["Access-Control-Allow-Headers"].lower()


async def talk(site: Serving, said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to the leader, and send some bytes."""
    reader, writer = await asyncio.open_connection(LOOPBACK, site.leader.port)
    writer.write(said)
    return reader, writer


def head(site: Serving, *lines: str) -> bytes:
    """Return the head of an upload with these further lines."""
    first = f"PUT {PATH}tasks/{site.parties.task.name}/reports HTTP/1.1"
    return "\r\n".join(
        [first, "Host: a", f"Content-Type: {REPORT_MEDIA_TYPE}", *lines, "", ""]
    ).encode()


async def test_a_body_that_is_too_large_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that announces more than a report is refused before it sends anything."""
    monkeypatch.setattr(upload, "LINGERING_SECONDS", 0.01)
    async with serving() as site:
        reader, writer = await talk(site, head(site, "Content-Length: 1000000000"))
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()


async def test_a_client_may_ask_before_it_sends() -> None:
    """A client that expects to be told to continue is told so."""
    async with serving() as site:
        report = site.parties.report(1).encode()
        lines = f"Content-Length: {len(report)}", "Expect: 100-continue"
        reader, writer = await talk(site, head(site, *lines))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(report)
        assert (await reader.readline()).split()[1] == b"201"
        writer.close()


async def test_a_slow_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops within its body is refused after a time, and its connection ends."""
    monkeypatch.setattr(upload, "BODY_SECONDS", 0.01)
    monkeypatch.setattr(upload, "LINGERING_SECONDS", 0.01)
    async with serving() as site:
        reader, writer = await talk(site, head(site, "Content-Length: 200") + b"half")
        answer = await reader.read()
        assert answer.split()[1] == b"408"
        assert b"did not arrive" in answer
        writer.close()


async def test_a_slow_body_keeps_no_memory_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends little of a long report has a short time, and then others have it."""
    monkeypatch.setattr(upload, "BODIES_BYTES_MAX", 1)
    monkeypatch.setattr(upload, "BODY_BYTES_PER_SECOND", 1e-3)
    monkeypatch.setattr(upload, "LINGERING_SECONDS", 0.01)
    async with serving() as site:
        report = site.parties.report(1).encode()
        length = f"Content-Length: {len(report)}"
        slow = await talk(site, head(site, length, "Expect: 100-continue"))
        assert b"100" in await slow[0].readuntil(b"\r\n\r\n")  # it has the memory
        monkeypatch.setattr(upload, "BODY_BYTES_PER_SECOND", 1e9)
        monkeypatch.setattr(upload, "BODY_SECONDS", 0.01)
        slow[1].write(report[:1])  # which moves its end
        other = await talk(site, head(site, length) + report)
        for (reader, writer), status in ((slow, b"408"), (other, b"201")):
            assert (await reader.readline()).split()[1] == status
            writer.close()


@pytest.mark.parametrize(
    "said", [b"", b"PUT /dap/ta", b"GET /dap/hpke_config HTTP/1.1\r\nHost: a\r\n"]
)
async def test_a_silent_client_is_given_up(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """A connection without a complete request ends after a time."""
    monkeypatch.setattr(upload, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(upload, "HANDSHAKE_SECONDS", 0.01)
    async with serving() as site:
        reader, writer = await talk(site, said)
        assert await reader.read() == b""
        writer.close()


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, an idle connection makes room, and one with a request in progress stays."""
    monkeypatch.setattr(upload, "CONNECTIONS_MAX", 3)
    async with serving() as site:
        report = site.parties.report(1).encode()
        reader, writer = await talk(site, head(site, f"Content-Length: {len(report)}"))
        others = []
        for _ in range(6):
            others.append(
                await talk(site, f"GET {PATH}hpke_config HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            )
            assert (await others[-1][0].readline()).split()[1] == b"400"
        for early, _ in others[:4]:
            await early.read()  # ends: its place was needed
        writer.write(report)
        assert (await reader.readline()).split()[1] == b"201"
        for _, each in [(reader, writer), *others]:
            each.close()


async def test_bodies_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body waits for its turn while others fill the memory for bodies."""
    monkeypatch.setattr(upload, "BODIES_BYTES_MAX", 1)
    async with serving() as site:
        reports = [site.parties.report(1, seed).encode() for seed in range(2)]
        length = f"Content-Length: {len(reports[0])}"
        first = await talk(site, head(site, length, "Expect: 100-continue"))
        assert b"100" in await first[0].readuntil(b"\r\n\r\n")  # it has the memory
        second = await talk(site, head(site, length) + reports[1])
        first[1].write(reports[0])
        for reader, writer in (first, second):
            assert (await reader.readline()).split()[1] == b"201"
            writer.close()
        assert [each.id for each in site.parties.stored()] == [each[:16] for each in reports]


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
async def test_strangers_leave_no_trace(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A request that is not HTTP is refused, and neither it nor its address is in the log."""
    async with serving() as site:
        with caplog.at_level(logging.DEBUG, logger="veilring"):
            reader, writer = await talk(site, said + b"\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"400"
            writer.close()
        assert LOOPBACK not in caplog.text
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


class SlowStore:
    """Stores uploads once it is allowed to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = asyncio.Event()
        self.groups: list[int] = []
        self._loop = asyncio.get_running_loop()

    def add(self, group: Sequence[Upload]) -> Sequence[Added]:
        """Note the size of a group, and wait."""
        self.groups.append(len(group))
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.go.wait(60)
        return ["stored"] * len(group)


async def test_no_upload_is_acknowledged_before_it_is_stored() -> None:
    """Answers wait for the transaction, and uploads that arrive meanwhile share the next one."""
    store = SlowStore()
    async with serving(add=store.add) as site, ClientSession() as session:
        bodies = [site.parties.report(1, seed).encode() for seed in range(8)]
        first = asyncio.create_task(put(session, site, bodies[0]))
        await store.begun.wait()
        opened, door = asyncio.Semaphore(0), site.parties.door

        class Watched(Door):
            def open(self, message: bytes, now: float) -> Upload:
                opened.release()
                return door.open(message, now)

        site.intake.door = Watched(door.task, door.prio, door.keys)
        others = [asyncio.create_task(put(session, site, each)) for each in bodies[1:]]
        for _ in others:
            await opened.acquire()
        assert not first.done()
        store.go.set()
        assert await asyncio.gather(first, *others) == [(201, {})] * 8
        assert store.groups == [1, 7]


async def test_a_full_disk_is_reported_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is told to send the same report again, which is stored once the disk works."""
    monkeypatch.setattr(intake, "STORE_PAUSE_SECONDS", 0.0)
    failures = [StoreFailed("the disk is full")]
    store: Callable[[Sequence[Upload]], Sequence[Added]]

    def add(group: Sequence[Upload]) -> Sequence[Added]:
        if failures:
            raise failures.pop()
        return store(group)

    async with serving(add=add) as site, ClientSession() as session:
        store = site.parties.store.add
        report = site.parties.report(1).encode()
        async with session.put(site.upload_url, data=report, headers=TYPE) as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            document = await document_of(response)
            assert "full" not in document["detail"]  # the disk is the operator's
        assert await put(session, site, report) == (201, {})


async def test_a_leader_that_can_store_no_more_says_so() -> None:
    """Once a state file is closed, each upload is refused at once, and the leader ends."""

    def add(_group: Sequence[Upload]) -> Sequence[Added]:
        raise InputError.because("the store of shares is closed", field="store of shares")

    ends = pytest.raises(StoreFailed, match="has to be started again: the store of shares is")
    with ends:
        async with serving(add=add) as site, ClientSession() as session:
            for seed in range(2):
                status, _ = await put(session, site, site.parties.report(1, seed).encode())
                assert status == 503
            await site.intake.failure()


async def test_a_bug_is_answered_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is in the log, and its client learns nothing of it."""
    async with serving() as site, ClientSession() as session:
        monkeypatch.setattr(site.parties.door, "prio", None)
        status, document = await put(session, site, site.parties.report(1).encode())
        assert (status, document["type"]) == (500, "about:blank")
        assert "detail" not in document
        assert "a request failed" in caplog.text


async def test_a_server_that_stops_answers_first() -> None:
    """An upload that is being stored when the server stops is acknowledged."""
    store = SlowStore()
    async with ClientSession() as session:
        async with serving(add=store.add) as site:
            report = site.parties.report(1).encode()
            sent = asyncio.create_task(put(session, site, report))
            await store.begun.wait()
            asyncio.get_running_loop().call_later(0.01, store.go.set)
        assert await sent == (201, {})


async def test_uploads_over_tls(tmp_path: Path) -> None:
    """With a certificate, both aggregators speak TLS, also with a renewed one."""
    certificate = write_certificate(tmp_path)
    async with serving(certificate=certificate) as site:
        assert site.trust is not None
        async with ClientSession() as session:
            report = site.parties.report(1).encode()
            async with session.put(
                site.upload_url, data=report, headers=TYPE, ssl=site.trust
            ) as response:
                assert response.status == 201
        renewed = write_certificate(tmp_path)
        assert site.tls is not None
        renew_certificate(site.tls, *renewed)
        trust = ssl.create_default_context(cafile=renewed[0])
        async with ClientSession() as session, session.get(site.configs_url, ssl=trust) as response:
            assert response.status == 200


def test_a_wrong_certificate_is_refused(tmp_path: Path) -> None:
    """A missing file, a file of another kind or another key is refused by name."""
    certificate, key = write_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, another = write_certificate(other)
    for wrong in ((tmp_path / "none", key), (key, key), (certificate, another)):
        with pytest.raises(InputError, match="certificate"):
            load_certificate(*wrong)


async def test_uploads_without_tls_are_for_this_machine() -> None:
    """A server without a certificate refuses an address that others can reach."""
    parties = Aggregators(make_task())
    site = Site(parties.task, parties.task.leader, parties.leader)
    with pytest.raises(InputError, match="without TLS"):
        UploadServer(site, ("0.0.0.0", 0))  # noqa: S104  (it is refused)


async def test_renewed_keys_are_advertised_and_used() -> None:
    """A leader with renewed keys advertises them, and refuses reports to a deleted key."""
    async with serving() as site, ClientSession() as session:
        old = site.parties.report(1).encode()
        fresh = Aggregators(site.parties.task).helper
        site.parties.leader.renew(fresh)
        async with session.get(site.configs_url) as response:
            assert await response.read() == fresh.advertised
        status, document = await put(session, site, old)
        assert (status, document["type"]) == (400, f"{URN}outdatedConfig")
        assert await put(session, site, site.parties.report(1).encode()) == (201, {})


@pytest.mark.parametrize(
    "body", [b"zz\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n"]
)
async def test_a_malformed_body_is_no_error_of_the_server(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A body with wrong chunks is refused as such, without a line in the log."""
    async with serving() as site:
        reader, writer = await talk(site, head(site, "Transfer-Encoding: chunked") + body)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert caplog.text == ""


async def test_a_client_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A client that ends within its body leaves no line in the log, and nothing in the store."""
    async with serving() as site:
        reader, writer = await talk(site, head(site, "Content-Length: 200", "Expect: 100-continue"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"half")
        writer.close()
        async with ClientSession() as session:
            assert (await put(session, site, site.parties.report(1).encode()))[0] == 201
        assert len(site.parties.stored()) == 1
    assert caplog.text == ""


async def test_one_address_cannot_displace_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, the address with most connections loses one, busy or not."""
    monkeypatch.setattr(upload, "CONNECTIONS_MAX", 3)
    async with serving() as site:
        line = head(site, "Content-Length: 200", "Expect: 100-continue")
        slow = [await talk(site, line) for _ in range(2)]
        for reader, _ in slow:
            await reader.readuntil(b"\r\n\r\n")
        other = await asyncio.open_connection(
            LOOPBACK, site.leader.port, local_addr=("127.0.0.2", 0)
        )
        other[1].write(f"GET {PATH}hpke_config HTTP/1.1\r\nHost: a\r\n".encode())
        last = await talk(site, line)
        await last[0].readuntil(b"\r\n\r\n")
        assert await slow[0][0].read() == b""  # its place was taken
        other[1].write(b"\r\n")
        assert (await other[0].readline()).split()[1] == b"400"
        for _, writer in (*slow, other, last):
            writer.close()
