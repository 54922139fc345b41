"""The pipe between a launcher and one of its own processes.

Both ends are the same program on the same machine with the same rights, and the pipe has no name
that anybody else could open: here, and only here, objects are pickled.
"""

import asyncio
import pickle
import socket
import struct
from typing import Any, Final

from veilring.errors import ClusterError

_LENGTH: Final = struct.Struct(">Q")  # resident data may be larger than 4 GiB


def pack_job(job: object) -> bytes:
    """Pack a job on its own, so that whoever cannot unpack it still knows which one it was.

    Raises:
        ClusterError: If its role is not at the top of a module, or something in it has no pickle.
    """
    try:
        return pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ClusterError(f"this cannot be played in another process: {error}") from error


def unpack_job(packed: bytes) -> Any:  # noqa: ANN401 (whatever was packed)
    """Unpack a job.

    Raises:
        ImportError: If the module of its role cannot be imported here.
        AttributeError: If the module has no such role.
    """
    return pickle.loads(packed)  # noqa: S301 (from ourselves)


class Control:
    """One end of the pipe: whole objects out and in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, pipe: socket.socket) -> "Control":
        """Take over one end of a socket pair."""
        return cls(*await asyncio.open_unix_connection(sock=pipe))

    async def send(self, item: object) -> None:
        """Send an object.

        Raises:
            ConnectionError: If the other end is gone.
        """
        body = pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer.write(_LENGTH.pack(len(body)) + body)
        await self._writer.drain()

    async def receive(self) -> Any:  # noqa: ANN401 (whatever was sent)
        """Wait for the next object.

        Raises:
            EOFError: If the other end is gone.
            ConnectionError: The same.
        """
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return pickle.loads(await self._reader.readexactly(length))  # noqa: S301 (from ourselves)

    async def close(self) -> None:
        """Close this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # the other end was faster
