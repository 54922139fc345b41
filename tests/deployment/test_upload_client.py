"""Uploads from Python, over connections that fail."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.uploading import serving, write_certificate
from tests.protocols.prio.reports import NOW, VDAFS, Aggregators, make_task

from veilring.deployment.surveys.upload_client import open_uploader
from veilring.errors import HandshakeError, InputError, StoreFailed
from veilring.protocols import intake
from veilring.protocols.prio.dap import Report, encode_configs
from veilring.protocols.prio.sealing import Keyring, Problem, ReportRefused, make_key
from veilring.protocols.prio.store import Added, Upload
from veilring.randomness import Streams

PAUSES = (0.0, 0.0)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STORE_PAUSE_SECONDS", 0.0)


async def test_a_measurement_is_counted_once(tmp_path: Path) -> None:
    """A report over TLS is stored, and its measurement is in the total."""
    certificate = write_certificate(tmp_path)
    async with (
        serving(VDAFS["sumvec"], certificate=certificate) as site,
        open_uploader(site.parties.task, tls=site.trust) as uploader,
    ):
        generator = Streams(1).generator("client")
        await uploader.report([1, 2, 3, 4, 5], now=NOW, generator=generator)
        assert site.parties.totals() == ([1, 2, 3, 4, 5], 0)


async def test_the_same_seed_gives_the_same_report() -> None:
    """A report is a function of its measurement, its time, the keys and the seed."""
    parties = Aggregators(make_task())
    first, again, other = (parties.report(1, seed).encode() for seed in (7, 7, 8))
    assert first == again != other


async def test_an_upload_without_an_answer_is_repeated_alike() -> None:
    """After a failed disk, the same bytes are sent again, as often as there are pauses."""
    sent = list[Upload]()
    failures = [StoreFailed("full"), StoreFailed("full")]

    def add(group: Sequence[Upload]) -> Sequence[Added]:
        sent.extend(group)
        if failures:
            raise failures.pop()
        return ["stored"] * len(group)

    async with serving(add=add) as site, open_uploader(site.parties.task, pauses=PAUSES) as client:
        await client.report(1, now=NOW, generator=Streams(1).generator())
        assert sent == [sent[0]] * 3
        failures.extend(StoreFailed("full") for _ in range(3))
        with pytest.raises(HandshakeError, match=r"503.*3 attempts failed"):
            await client.report(1, now=NOW, generator=Streams(2).generator())


async def test_a_refused_report_is_not_repeated() -> None:
    """The refusal of an aggregator is an error with its type and its words."""
    async with serving(now=lambda: NOW - 9999) as site, open_uploader(site.parties.task) as client:
        with pytest.raises(ReportRefused, match="ahead") as caught:
            await client.report(1, now=NOW, generator=Streams(1).generator())
        assert caught.value.problem == Problem.REPORT_TOO_EARLY


async def test_a_new_key_gets_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the key changes before the upload, the same shares are sealed again, and count once.

    A leader that only pretends this has two reports with the same id, and a helper accepts one.
    """
    async with serving() as site, open_uploader(site.parties.task) as client:
        leader = site.parties.leader
        fetch, fresh = client.fetch_recipients, Keyring([make_key(3, b"N" * 32)])

        async def fetch_late() -> object:
            recipients = await fetch()
            leader.renew(fresh)
            return recipients

        sent, send = list[Report](), client._send  # noqa: SLF001  (what a leader sees)

        async def noted(report: bytes) -> Any:
            sent.append(Report.decode(report))
            return await send(report)

        monkeypatch.setattr(client, "fetch_recipients", fetch_late)
        monkeypatch.setattr(client, "_send", noted)
        await client.report(1, now=NOW, generator=Streams(1).generator())
        assert site.parties.totals() == ([1], 0)
        first, second = sent
        assert (first.metadata, first.public_share) == (second.metadata, second.public_share)
        assert first.leader.config_id != second.leader.config_id


async def test_a_new_key_gets_no_second_report_after_a_doubt() -> None:
    """A report that may be stored is never followed by another one of the same measurement."""
    leaders = list[Keyring]()

    def add(_group: Sequence[Upload]) -> Sequence[Added]:
        leaders[0].renew(Keyring([make_key(3, b"N" * 32)]))
        raise StoreFailed("it may be on disk")

    async with serving(add=add) as site, open_uploader(site.parties.task, pauses=PAUSES) as client:
        leaders.append(site.parties.leader)
        with pytest.raises(ReportRefused, match="outdatedConfig"):
            await client.report(1, now=NOW, generator=Streams(1).generator())


async def test_an_aggregator_that_is_not_there() -> None:
    """The error names the address, and suggests to try again."""
    async with serving() as site:
        task = site.parties.task
    async with open_uploader(task, pauses=()) as client:
        with pytest.raises(HandshakeError, match=rf"{task.leader}.*1 attempts failed"):
            await client.fetch_recipients()


async def test_a_server_that_is_no_aggregator() -> None:
    """Another server's answer is an error that names the address."""
    async with serving() as site:
        task = site.parties.task.model_copy(update={"leader": site.parties.task.leader + "x/"})
        async with open_uploader(task) as client:
            with pytest.raises(HandshakeError, match="404 Not Found; check the addresses"):
                await client.fetch_recipients()


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    """By default, only certificates of the system's authorities are accepted."""
    async with (
        serving(certificate=write_certificate(tmp_path)) as site,
        open_uploader(site.parties.task, pauses=()) as client,
    ):
        with pytest.raises(HandshakeError, match="certificate"):
            await client.fetch_recipients()


async def test_keys_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of an unknown algorithm or a small order is passed over, and nothing is sent to it."""
    async with serving() as site, open_uploader(site.parties.task) as client:
        unknown = replace(make_key(5, b"U" * 32).config, kem_id=0x99)
        small = replace(make_key(4, b"S" * 32).config, public_key=bytes(32))
        monkeypatch.setattr(site.parties.leader, "advertised", encode_configs([unknown, small]))
        with pytest.raises(InputError, match="no key"):
            await client.fetch_recipients()
        usable = make_key(6, b"W" * 32).config
        monkeypatch.setattr(site.parties.leader, "advertised", encode_configs([unknown, usable]))
        assert (await client.fetch_recipients()).leader == usable
