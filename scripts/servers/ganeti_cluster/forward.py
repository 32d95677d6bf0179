"""Pass connections to a port of 127.0.0.1 on to an address inside of the network namespace of a process.

forward.py PORT PID HOST HOST_PORT
"""

import asyncio
import ctypes
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_NETWORK_NAMESPACE = 0x40000000
_CHUNK = 65_536


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(host, port)
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            there_writer.close()
        writer.close()

    server = await asyncio.start_server(pass_on, sock=listener)
    await server.serve_forever()


def main(port: str, pid: str, host: str, host_port: str) -> None:
    # It was made before the namespace changes, so it stays outside.
    listener = socket.create_server(("127.0.0.1", int(port)))
    namespace = os.open(Path(f"/proc/{pid}/ns/net"), os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NETWORK_NAMESPACE):
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
    asyncio.run(_serve(listener, host, int(host_port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
