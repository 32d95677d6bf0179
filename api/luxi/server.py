"""The socket: JSON messages with an end byte, many per connection, each answered before the next is read."""

import asyncio
import os
import socket
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fleetlight.api.http.errors import TooManyListsError, TooManyPartsError
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.luxi.calls import LuxiCalls, LuxiError, MalformedRequestError, Result
from fleetlight.api.luxi.frames import END, IDLE_S, PIECE_BYTES, FrameReader, HeldByOne, HeldBytes, RefusedFrameError
from fleetlight.api.luxi.paths import LONGEST_PATH, is_short_enough
from fleetlight.resources.malformed_json import MALFORMED_JSON

_MAX_CONNECTIONS = 200
_WAITING_CONNECTIONS = 128
_MODE = 0o660

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class _Request(msgspec.Struct):
    method: str
    args: list[Any]


_decode = msgspec.json.Decoder(_Request).decode


class LuxiSocketError(Exception):
    """The socket cannot be opened at this path; the text says why."""


@asynccontextmanager
async def serving_luxi(path: Path, calls: LuxiCalls) -> AsyncIterator[None]:
    """Serve a socket at `path` in the block. Replaces the socket of a process that has ended.

    Raises LuxiSocketError, also when another process serves there.
    """
    if not is_short_enough(path):
        raise LuxiSocketError(f"the path {path} is too long for a socket: it may have {LONGEST_PATH} bytes")
    _remove_left_over(path)
    server = _Server(calls)
    before = os.umask(0o777 & ~_MODE)
    try:
        listening = await asyncio.start_unix_server(server.serve, path, limit=PIECE_BYTES, backlog=_WAITING_CONNECTIONS)
    except OSError as error:
        raise LuxiSocketError(f"cannot serve the socket {path}: {(error.strerror or str(error)).lower()}") from error
    finally:
        os.umask(before)
    _log.info("luxi.ready", path=str(path))
    try:
        yield
    finally:
        listening.close()
        await server.close()
        _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_left_over(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            _remove(path)
        except OSError:
            # No file is there, or one that is no socket; then starting the server fails.
            return
        else:
            raise LuxiSocketError(f"another process serves the socket {path}")


class _Server:
    def __init__(self, calls: LuxiCalls) -> None:
        self._calls = calls
        self._serving: set[asyncio.Task[None]] = set()
        self._held = HeldBytes()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._serving) >= _MAX_CONNECTIONS:
            writer.close()
            return
        self._serving.add(task)
        try:
            frames = FrameReader(reader)
            while await self._answer_next(frames, writer):
                pass
        except (OSError, TimeoutError, IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(IDLE_S):
                    await writer.wait_closed()
            # The client does not read the end of its answer.
            writer.transport.abort()
            self._serving.discard(task)

    async def close(self) -> None:
        """End all connections."""
        ending = list(self._serving)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _answer_next(self, frames: FrameReader, writer: StreamWriter) -> bool:
        """Answer the next request; returns whether another may follow."""
        goes_on = True
        try:
            with self._held.of_connection() as held:
                result = await self._next_result(frames, held)
        except TooManyPartsError as error:
            refusal: Any = _unparsed(f"it has more than {error.limit} parts, commas and brackets")
            goes_on = False
        except (RefusedFrameError, MalformedRequestError) as error:
            refusal = _unparsed(str(error))
            goes_on = False
        except LuxiError as error:
            refusal = [error.kind, list(error.details)]
        except (OSError, IncompleteReadError):
            raise
        except Exception:  # noqa: BLE001  # the edge: every failure becomes an answer
            _log.exception("request_failed")
            refusal = ["GenericError", ["the request failed; the log says why"]]
        else:
            return await self._send(result, writer)
        await _write(_encode({"success": False, "result": refusal}) + END, writer)
        return goes_on

    async def _send(self, result: Result, writer: StreamWriter) -> bool:
        """Send a result while it is made; returns whether it was sent whole. Clients ignore a message without end."""
        try:
            await _write(b'{"success":true,"result":', writer)
            async for part in result.parts:
                await _write(part, writer)
        except OSError:
            raise
        except Exception:  # noqa: BLE001  # the edge: half of the answer is sent
            _log.exception("request_failed")
            return False
        await _write(b"}" + END if result.is_complete() else b',"complete":false}' + END, writer)
        return True

    async def _next_result(self, frames: FrameReader, held: HeldByOne) -> Result:
        frame = await frames.next(held)
        try:
            request = await made_aside(frame.parts, lambda: _request_of(frame.text))
            return await self._calls.answer(request.method, request.args, frame.parts)
        except TooManyListsError as error:
            raise LuxiError("GenericError", str(error)) from error


def _request_of(text: bytearray) -> _Request:
    """Parse a request. Raises MalformedRequestError."""
    try:
        return _decode(text)
    except MALFORMED_JSON as error:
        raise MalformedRequestError(str(error)) from None


async def _write(part: bytes, writer: StreamWriter) -> None:
    """Write a part. Raises TimeoutError for a client that does not read."""
    # JSON escapes the end byte in texts.
    writer.write(part)
    async with asyncio.timeout(IDLE_S):
        await writer.drain()


def _unparsed(reason: str) -> str:
    return f"Failed to parse request: {reason}"
