"""A client's requests to the aggregators of a verified sum, over HTTPS (DAP-09, section 4.4).

A report whose upload was not answered, or was refused by a leader that lies, may be stored already.
So the same report is sent again, and counts once; a new one of the same measurement would count
twice, and cost its ε twice.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from numpy.random import Generator
from numpy.typing import ArrayLike

from veilring.deployment.surveys.upload import PROBLEM_MEDIA_TYPE, URN
from veilring.errors import FrameError, HandshakeError
from veilring.extras import name_missing_extras
from veilring.protocols.prio.client import (
    Recipients,
    Sharded,
    choose_config,
    seal_report,
    shard_report,
)
from veilring.protocols.prio.dap import (
    CONFIGS_MEDIA_TYPE,
    REPORT_MEDIA_TYPE,
    HpkeConfig,
    decode_configs,
)
from veilring.protocols.prio.scheme import scheme_of
from veilring.protocols.prio.sealing import Problem, ReportRefused
from veilring.protocols.prio.task import Task

with name_missing_extras():
    from aiohttp import (
        ClientError,
        ClientSession,
        ClientTimeout,
        DummyCookieJar,
        StreamReader,
        TCPConnector,
    )

PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""The seconds between attempts: a leader that restarts is back by then."""
# A report takes a second or two on a slow line.
REQUEST_SECONDS: Final = 60.0
# A list of configurations has some 100 bytes, and a problem document some 300.
ANSWER_BYTES_MAX: Final = 1 << 16
# Statuses after which the same request may succeed.
_PASSING: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class _Answer(NamedTuple):
    """An aggregator's answer.

    Attributes:
        attempts: The number of requests that were sent.
    """

    status: int
    media_type: str
    body: bytes
    attempts: int


class Uploader:
    """Uploads reports to one task. Create it with `open_uploader`."""

    def __init__(self, task: Task, session: ClientSession, pauses: Sequence[float]) -> None:
        self.task, self._prio = task, scheme_of(task.vdaf)
        self._session, self._pauses = session, pauses

    async def fetch_recipients(self) -> Recipients:
        """Ask both aggregators for their keys.

        Raises:
            HandshakeError: If one of them cannot be reached, or does not answer as an aggregator.
            ReportRefused: If one of them does not know the task.
            InputError: If one of them advertises no key that can be used here.
        """
        bases = (self.task.leader, self.task.helper)
        return Recipients(*await asyncio.gather(*map(self._fetch_config, bases)))

    async def send(self, report: bytes) -> None:
        """Upload an encoded report. Once this returns, the leader has stored it.

        Raises:
            HandshakeError: If the leader cannot be reached, or does not answer as one.
            ReportRefused: If the leader refuses the report.
        """
        refused, _ = await self._send(report)
        if refused is not None:
            raise refused

    async def report(self, measurement: ArrayLike, *, now: float, generator: Generator) -> None:
        """Report one measurement. Once this returns, the leader has stored it.

        If the leader refuses its key as outdated, the same report is sealed to the new key: a
        leader that lies, and keeps both, can have only one counted. After several attempts, the
        report may have been stored, and is not sent again.

        Args:
            measurement: See `shard_report`.
            now: The time in seconds since 1970 (UTC).
            generator: See `shard_report`.

        Raises:
            HandshakeError: If an aggregator cannot be reached, or does not answer as one.
            ReportRefused: If the leader refuses the report.
            InputError: If the measurement is out of range.
        """
        sharded = shard_report(self.task, self._prio, measurement, now=now, generator=generator)
        refused = await self._report(sharded, generator)
        if refused is not None:
            refused = await self._report(sharded, generator)
        if refused is not None:
            raise refused

    async def _report(self, sharded: Sharded, generator: Generator) -> ReportRefused | None:
        """Upload a report; return the refusal if it may be sealed to another key."""
        report = seal_report(self.task, sharded, await self.fetch_recipients(), generator)
        refused, attempts = await self._send(report.encode())
        if refused is not None and (refused.problem != Problem.OUTDATED_CONFIG or attempts > 1):
            raise refused
        return refused

    async def _send(self, report: bytes) -> tuple[ReportRefused | None, int]:
        """Upload a report; return the refusal, if any, and the number of attempts."""
        url = f"{self.task.leader}tasks/{self.task.name}/reports"
        headers = {"Content-Type": REPORT_MEDIA_TYPE}
        answer = await self._ask("PUT", url, data=report, headers=headers)
        if answer.status == HTTPStatus.CREATED:
            return None, answer.attempts
        return _refusal(url, answer), answer.attempts

    async def _fetch_config(self, base: str) -> HpkeConfig:
        url = f"{base}hpke_config"
        headers = {"Accept": CONFIGS_MEDIA_TYPE}
        answer = await self._ask("GET", url, params={"task_id": self.task.name}, headers=headers)
        if answer.status != HTTPStatus.OK:
            raise _refusal(url, answer)
        if answer.media_type != CONFIGS_MEDIA_TYPE:
            raise _no_aggregator(url, f"it answered with {answer.media_type}")
        try:
            return choose_config(decode_configs(answer.body))
        except FrameError as error:
            raise _no_aggregator(url, f"its list of keys is malformed: {error}") from error

    async def _ask(self, method: str, url: str, **given: Any) -> _Answer:
        """Return the answer to a request, which is repeated while it has none."""
        why = ""
        for attempt, pause in enumerate((*self._pauses, None), start=1):
            try:
                async with self._session.request(
                    method, url, allow_redirects=False, **given
                ) as response:
                    body = await _read(response.content)
                    answer = _Answer(response.status, response.content_type, body, attempt)
                if answer.status not in _PASSING:
                    return answer
                why = _status_text(answer.status)
            except (ClientError, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            if pause is not None:
                await asyncio.sleep(pause)
        raise HandshakeError(
            url, f"{why}; {len(self._pauses) + 1} attempts failed, try again later"
        )


@asynccontextmanager
async def open_uploader(
    task: Task, *, tls: ssl.SSLContext | None = None, pauses: Sequence[float] = PAUSES
) -> AsyncIterator[Uploader]:
    """Open connections to the aggregators of a task.

    Args:
        tls: The settings of TLS; by default, the certificates of the system's authorities count.
        pauses: The seconds between the attempts of a request.
    """
    async with ClientSession(
        connector=TCPConnector(ssl=tls or True),
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=REQUEST_SECONDS),
        headers={"User-Agent": "veilring"},
    ) as session:
        yield Uploader(task, session, pauses)


async def _read(content: StreamReader) -> bytes:
    """Return an answer's body, or as much of it as an aggregator ever sends."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            break
    return bytes(body)


def _refusal(url: str, answer: _Answer) -> ReportRefused:
    """Return the refusal of a problem document.

    Raises:
        HandshakeError: If the answer is not such a document.
    """
    try:
        document = json.loads(answer.body) if answer.media_type == PROBLEM_MEDIA_TYPE else {}
        problem = Problem(str(document["type"]).removeprefix(URN))
        return ReportRefused(problem, str(document.get("detail", "")))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _no_aggregator(url, _status_text(answer.status)) from None


def _no_aggregator(url: str, reason: str) -> HandshakeError:
    return HandshakeError(url, f"{reason}; check the addresses of the task")


def _status_text(status: int) -> str:
    known = status in HTTPStatus.__members__.values()
    return f"it answered {status}{f' {HTTPStatus(status).phrase}' if known else ''}"
