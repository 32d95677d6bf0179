"""A TLS server before an address that has none, as a proxy is in production."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from scripts.servers.certificates import CERTIFICATE_FILE, KEY_FILE, make_certificates


@contextmanager
def tls_front(folder: Path, url: str) -> Iterator[str]:
    """The https address that leads to `url`; the certificates are made in `folder`."""
    make_certificates("tls front", folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / CERTIFICATE_FILE, folder / KEY_FILE)
    started, ports = threading.Event(), list[int]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(_passing_on(url), "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await stop.wait()
        server.close()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60)
        yield f"https://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


def _passing_on(url: str):  # type: ignore[no-untyped-def]  # what asyncio takes
    address = urlsplit(url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            behind_reader, behind_writer = await asyncio.open_connection(address.hostname, address.port)
            await asyncio.gather(_copy(reader, behind_writer), _copy(behind_reader, writer))

    return pass_on


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
