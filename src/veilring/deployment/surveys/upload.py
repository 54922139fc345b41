"""The HTTP server for clients of a verified sum: keys of both aggregators, uploads to the leader.

Source: DAP-09, sections 3 and 4.4. Browsers reach it from pages of any origin, over TLS with the
operator's certificate. Anyone may connect, so each client costs bounded time and memory:
connections are admitted as those of peers are, and a body is not read beyond the size of a report.

The server never logs or stores addresses of clients.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from typing_extensions import override

from veilring.errors import InputError, StoreFailed
from veilring.extras import name_missing_extras
from veilring.protocols.prio.dap import CONFIGS_MEDIA_TYPE, REPORT_MEDIA_TYPE
from veilring.protocols.prio.sealing import CACHE_SECONDS, Keyring, Problem, ReportRefused
from veilring.protocols.prio.task import Task, is_loopback, read_task_name
from veilring.protocols.prio.uploads import Intake
from veilring.transport.listener import Listener, bind

with name_missing_extras():
    from aiohttp import web
    from aiohttp.http import HttpProcessingError

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
"""The media type of a refusal (RFC 9457)."""
URN: Final = "urn:ietf:params:ppm:dap:error:"
# Open connections. Each costs a descriptor and, with TLS, some 300 KiB, most of it a buffer of
# Python's; above the limit, the address with the most of them loses one.
CONNECTIONS_MAX: Final = 512
# Bodies that are read or stored at once, all together.
BODIES_BYTES_MAX: Final = 64 << 20
# A handshake, the headers of a request, and the next request of a connection: a phone on a slow
# line needs a second or two.
HANDSHAKE_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 15.0
# A body gets this time, and more in proportion to what has arrived: a client that sends nothing
# keeps no memory from others, however long its report is.
BODY_SECONDS: Final = 15.0
BODY_BYTES_PER_SECOND: Final = 1 << 14
# A client that sends more than it may gets this time to read why, before its connection ends.
LINGERING_SECONDS: Final = 2.0
# A leader that stops first answers the uploads that it has read.
STOP_SECONDS: Final = 5.0
LINE_BYTES_MAX: Final = 1 << 12
HEADERS_MAX: Final = 64
RETRY_SECONDS: Final = 5
"""The pause that a client is asked to make before it uploads the same report again."""
_PREFLIGHT_SECONDS: Final = 86_400
_PLAIN_TYPE: Final = "about:blank"  # the status says everything (RFC 9457, section 4.2.1)
# A page of any origin may upload: a request carries no cookie, and its origin is no credential.
_HEADERS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Retry-After",
    "X-Content-Type-Options": "nosniff",
    "Server": "veilring",
}
_log = logging.getLogger("veilring.uploads")


@dataclass(frozen=True)
class Site:
    """An aggregator, as its clients see it.

    Attributes:
        base: The base URL of this aggregator in the task.
        intake: Where uploads go; none at a helper.
    """

    task: Task
    base: str
    keys: Keyring
    intake: Intake | None = None

    @cached_property
    def body_bytes_max(self) -> int:
        """The size of each report."""
        return 0 if self.intake is None else self.intake.door.report_bytes


@dataclass(eq=False)
class _Refused(Exception):
    """A request that is answered with a problem document."""

    status: HTTPStatus
    kind: str = _PLAIN_TYPE
    title: str = ""
    detail: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False

    @classmethod
    def of(cls, problem: Problem, detail: str) -> Self:
        """Return a refusal with a type of DAP-09, section 3.2."""
        return cls(HTTPStatus.BAD_REQUEST, f"{URN}{problem.value}", problem.meaning, detail)

    def response(self, task_name: str) -> web.Response:
        """Return the problem document.

        Args:
            task_name: The task in question; empty if the request names none.
        """
        document = {
            "type": self.kind,
            "title": self.title or self.status.phrase,
            "status": self.status.value,
            **({"detail": self.detail} if self.detail else {}),
            **({"taskid": task_name} if task_name else {}),
        }
        headers = {"Cache-Control": "no-store", **self.headers}
        response = web.Response(
            body=json.dumps(document).encode(),
            status=self.status,
            content_type=PROBLEM_MEDIA_TYPE,
            headers=headers,
        )
        if self.closes:
            response.force_close()
        return response


class UploadServer:
    """Answers clients while its context is entered.

    Args:
        at: The listening socket, or an address and a port to listen at.
        tls: The settings of TLS; without them, the address has to be on loopback.
    """

    def __init__(
        self, site: Site, at: socket.socket | tuple[str, int], tls: ssl.SSLContext | None = None
    ) -> None:
        self._site, self._tls = site, tls
        self._sock = bind(*at) if isinstance(at, tuple) else at
        if tls is None and not is_loopback(str(self._sock.getsockname()[0])):
            self._sock.close()
            raise InputError.because(
                "uploads without TLS are for this machine only; name a certificate and its key, or"
                " listen at 127.0.0.1 behind a server that has them",
                field="listen",
            )
        self._prefix = urlsplit(site.base).path
        size = max(1, site.body_bytes_max)
        self._body_seconds = BODY_SECONDS + size / BODY_BYTES_PER_SECOND
        self._bodies = asyncio.Semaphore(max(1, BODIES_BYTES_MAX // size))
        self._server: _Server
        self._listener: Listener

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self._sock.getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = _Server(
            self._answer,
            access_log=None,
            logger=_http_log,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGERING_SECONDS,
            auto_decompress=False,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
        )
        self._listener = Listener(
            self._sock,
            self._admit,
            lambda _address, _reason: None,
            HANDSHAKE_SECONDS,
            is_tls=self._tls is not None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        admissions = self._listener.admissions
        self._listener.close()
        await asyncio.gather(*admissions, return_exceptions=True)
        self._server.pre_shutdown()
        await self._server.shutdown(STOP_SECONDS)
        await self._server.abort()

    async def _admit(self, sock: socket.socket, _address: str) -> bool:
        """Open a connection; return whether its handshake succeeded."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=None if self._tls is None else LINGERING_SECONDS,
            )
        except OSError:
            return False
        return True

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Answer a request, if need be with a problem document."""
        named = ""
        try:
            with self._server.busy(request.protocol):
                resource = self._find(request)
                if read_task_name(resource.task_name) is not None:
                    named = resource.task_name
                response = await self._perform(request, resource)
        except _Refused as refused:
            response = refused.response(named)
        except ConnectionError:  # the client is gone
            response = _Refused(HTTPStatus.BAD_REQUEST, closes=True).response(named)
        except Exception:  # noqa: BLE001  (one request does not end the server)
            _log.exception("a request failed")
            response = _Refused(HTTPStatus.INTERNAL_SERVER_ERROR).response(named)
        response.headers.update(_HEADERS)
        return response

    def _find(self, request: web.BaseRequest) -> "_Resource":
        """Return the resource that a request names (DAP-09, section 4.3)."""
        path = request.rel_url.raw_path
        if path.startswith(self._prefix):
            match path.removeprefix(self._prefix).split("/"):
                case ["hpke_config"]:
                    return _Resource("GET", request.query.get("task_id", ""), self._advertise)
                case ["tasks", name, "reports"] if intake := self._site.intake:
                    return _Resource("PUT", name, partial(self._upload, intake))
        raise _Refused(HTTPStatus.NOT_FOUND)

    async def _perform(self, request: web.BaseRequest, resource: "_Resource") -> web.Response:
        """Perform the one method of a resource, or allow a page to do so."""
        if request.method == "OPTIONS":
            return web.Response(status=HTTPStatus.NO_CONTENT, headers=_preflight(resource.method))
        if request.method != resource.method:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": resource.method})
        if not resource.task_name:
            raise _Refused.of(Problem.MISSING_TASK_ID, "add the parameter task_id to the address")
        if resource.task_name != self._site.task.name:
            detail = "check the task id and the address of the aggregator"
            raise _Refused.of(Problem.UNRECOGNIZED_TASK, detail)
        return await resource.perform(request)

    async def _advertise(self, _request: web.BaseRequest) -> web.Response:
        """Answer with the keys of this aggregator (section 4.4.1)."""
        return web.Response(
            body=self._site.keys.advertised,
            content_type=CONFIGS_MEDIA_TYPE,
            headers={"Cache-Control": f"max-age={CACHE_SECONDS}"},
        )

    async def _upload(self, intake: Intake, request: web.BaseRequest) -> web.Response:
        """Store a report (section 4.4.2)."""
        if request.content_type != REPORT_MEDIA_TYPE or "Content-Encoding" in request.headers:
            detail = f"a report has the type {REPORT_MEDIA_TYPE}, and is not compressed"
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail=detail, closes=True)
        try:
            async with self._body(request) as body:
                await intake.take(body)
        except ReportRefused as refused:
            raise _Refused.of(refused.problem, refused.detail) from None
        except StoreFailed:
            detail = "the report could not be stored; upload the same report again"
            headers = {"Retry-After": str(RETRY_SECONDS)}
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail=detail, headers=headers) from None
        return web.Response(status=HTTPStatus.CREATED)

    @asynccontextmanager
    async def _body(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """Yield the body of a request, of which all together hold `BODIES_BYTES_MAX`."""
        limit = self._site.body_bytes_max
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._body_seconds):
                await self._bodies.acquire()
        except TimeoutError:
            raise _too_slow() from None
        try:
            yield await _read(request, limit)
        finally:
            self._bodies.release()


class _Resource(NamedTuple):
    """The target of a request.

    Attributes:
        method: Its only method.
        task_name: The task that the request names; empty if it names none.
    """

    method: str
    task_name: str
    perform: Callable[[web.BaseRequest], Awaitable[web.Response]]


class _Server(web.Server):
    """Keeps the number of open connections below a limit."""

    def __init__(self, handler: Any, **options: Any) -> None:  # noqa: ANN401  (passed on)
        super().__init__(handler, **options)
        self._open = dict[web.RequestHandler, asyncio.Transport]()  # the oldest first
        self._busy = set[web.RequestHandler]()
        self._empty = asyncio.Event()

    @override
    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= CONNECTIONS_MAX:
            self._open.pop(self._dispensable()).abort()
        self._open[handler] = transport

    @override
    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        if not self._open:
            self._empty.set()

    @contextmanager
    def busy(self, handler: web.RequestHandler) -> Iterator[None]:
        """Spare a connection, if possible, while a request of it is answered."""
        self._busy.add(handler)
        try:
            yield
        finally:
            self._busy.discard(handler)

    async def abort(self) -> None:
        """End all connections, also those whose client does not say goodbye."""
        for transport in self._open.values():
            transport.abort()
        if self._open:
            self._empty.clear()
            await self._empty.wait()

    def _dispensable(self) -> web.RequestHandler:
        """Return the oldest connection of the busiest address, if possible an idle one.

        So one address cannot displace all others, even if all its connections send a slow body.
        """
        hosts = {handler: _host_of(transport) for handler, transport in self._open.items()}
        count = Counter(hosts.values())
        return max(hosts, key=lambda each: (count[hosts[each]], each not in self._busy))


def _host_of(transport: asyncio.Transport) -> str:
    return str((transport.get_extra_info("peername") or [""])[0])


class _NoStrangers(logging.Filter):
    """Leaves out addresses, and requests that are not HTTP: anyone can send them at any rate."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = "a connection failed", ()
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


_http_log = logging.getLogger(f"{_log.name}.http")
_http_log.addFilter(_NoStrangers())


async def _read(request: web.BaseRequest, limit: int) -> bytes:
    """Return the body of a request; stop reading at a limit in bytes, or if it is too slow."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    body, began = bytearray(), asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(BODY_SECONDS) as due:
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > limit:
                    raise _too_large(limit)
                due.reschedule(began + BODY_SECONDS + len(body) / BODY_BYTES_PER_SECOND)
    except TimeoutError:
        raise _too_slow() from None
    return bytes(body)


def _too_slow() -> _Refused:
    detail = "the report did not arrive in time"
    return _Refused(HTTPStatus.REQUEST_TIMEOUT, detail=detail, closes=True)


def _too_large(limit: int) -> _Refused:
    detail = f"a report to this task has {limit} bytes"
    return _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail=detail, closes=True)


def _preflight(method: str) -> dict[str, str]:
    """Return the headers that allow a page of another origin to use a method."""
    return {
        "Allow": f"{method}, OPTIONS",
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": "Accept, Content-Type",
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }


def load_certificate(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the settings of TLS for the operator's certificate, which browsers trust.

    Args:
        certificate: A PEM file with the certificate and the intermediate ones after it.
        key: A PEM file with its private key, without a password.

    Raises:
        InputError: If the files cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # of phones that get no updates
    context.set_alpn_protocols(["http/1.1"])
    renew_certificate(context, certificate, key)
    return context


def renew_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use renewed files for new connections; see `load_certificate`.

    Raises:
        InputError: If the files cannot be read, or do not belong together; nothing changes.
    """
    try:
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):  # a failure leaves a half
            each.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        allowed = f"a certificate and its private key in PEM, without a password ({error})"
        raise InputError("certificate", certificate, allowed) from error
