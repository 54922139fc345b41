"""Pages that a web server of a test provides over HTTPS."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from veilring.deployment.surveys.upload import load_certificate
from veilring.transport.listener import bind
from veilring.transport.tls import LOOPBACK

PACKAGE: Final = "@divviup/dap@0.9.1"
BUNDLE: Final = "node_modules/@divviup/dap/dist/browser.js"
"""The package's file for pages."""
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".json": "application/json"}


@asynccontextmanager
async def web_site(
    files: Mapping[str, bytes], certificate: tuple[Path, Path]
) -> AsyncIterator[str]:
    """Serve files by their names over HTTPS; yield the address of their folder."""

    async def answer(request: web.BaseRequest) -> web.Response:
        name = request.path.removeprefix("/")
        kind = _TYPES[Path(name).suffix]
        response = web.Response(body=files[name], content_type=kind, charset="utf-8")
        response.force_close()
        return response

    sock, handlers = bind(LOOPBACK, 0), web.Server(answer)
    server = await asyncio.get_running_loop().create_server(
        handlers, sock=sock, ssl=load_certificate(*certificate)
    )
    async with server:
        yield f"https://{LOOPBACK}:{sock.getsockname()[1]}/"
    for each in handlers.connections:  # that the browser has opened without need
        if each.transport is not None:
            each.transport.abort()
    await asyncio.sleep(0)
