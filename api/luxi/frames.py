"""Reading messages of connections, and the limit on unfinished messages."""

import asyncio
from asyncio import IncompleteReadError, StreamReader
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fleetlight.api.http.errors import TooManyPartsError
from fleetlight.api.limits.large_bodies import MAX_PARTS, CountedParts

END = b"\x03"
PIECE_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 10 * 1024 * 1024
MAX_HELD_BYTES = 64 * 1024 * 1024
# A silent client may wait so long, which is the time that it would wait for an answer.
IDLE_S = 180.0
MESSAGE_S = 30.0


class RefusedFrameError(Exception):
    """A message is too large, or has no room now; the text says why. It was read and discarded."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message without its end mark, and the number of its parts (fleetlight.api.limits.large_bodies)."""

    text: bytearray
    parts: int


class HeldBytes:
    """The bytes of messages of all connections. The first piece of each does not count: connections have a limit.

    reading: lock for each further piece, so that the event loop does other work after each, however many connections
    send at once.
    """

    def __init__(self) -> None:
        self._held = 0
        self.reading = asyncio.Lock()

    @contextmanager
    def of_connection(self) -> Iterator["HeldByOne"]:
        """Yield the account of one connection, whose bytes are given back after the block."""
        one = HeldByOne(self)
        try:
            yield one
        finally:
            one.give_back()

    def add(self, count: int) -> None:
        """Count further bytes. Raises RefusedFrameError when there is no room."""
        if count > 0 and self._held + count > MAX_HELD_BYTES:
            raise RefusedFrameError("there is no room for it now; try again later")
        self._held += count


class HeldByOne:
    """The bytes of one connection."""

    def __init__(self, all_held: HeldBytes) -> None:
        self._all = all_held
        self._counted = 0
        self.reading = all_held.reading

    def has(self, size: int) -> None:
        """Note that the message has `size` bytes now. Raises RefusedFrameError when there is no room."""
        counted = max(0, size - PIECE_BYTES)
        self._all.add(counted - self._counted)
        self._counted = counted

    def give_back(self) -> None:
        self.has(0)


class FrameReader:
    """Reads the messages of one connection one by one.

    Its stream buffers little more than a piece, since it was made with the limit PIECE_BYTES.
    """

    def __init__(self, stream: StreamReader) -> None:
        self._stream = stream
        self._ahead = b""
        self._is_at_end = True

    async def next(self, held: HeldByOne) -> Frame:
        """Read the next message, and count its bytes in `held`.

        Raises RefusedFrameError, TooManyPartsError, TimeoutError for a message that does not begin within IDLE_S or end
        within MESSAGE_S, and IncompleteReadError at the end of the connection.
        """
        async with asyncio.timeout(IDLE_S):
            piece = await self._piece()
        async with asyncio.timeout(MESSAGE_S):
            try:
                return await self._frame(piece, held)
            except (RefusedFrameError, TooManyPartsError):
                # Read on first, since the sender reads no answer before it has sent all.
                held.give_back()
                await self._skip(held)
                raise

    async def _frame(self, piece: bytes, held: HeldByOne) -> Frame:
        text, counted = bytearray(), CountedParts(MAX_PARTS)
        while True:
            begin, end, self._ahead = piece.partition(END)
            self._is_at_end = bool(end)
            if len(text) + len(begin) > MAX_MESSAGE_BYTES:
                raise RefusedFrameError(f"it has more than {MAX_MESSAGE_BYTES} bytes")
            counted.add(begin)
            held.has(len(text) + len(begin))
            text += begin
            if end:
                return Frame(text, counted.count)
            piece = await self._further_piece(held)

    async def _skip(self, held: HeldByOne) -> None:
        """Read a refused message to its end, and discard it."""
        while not self._is_at_end:
            _, end, self._ahead = (await self._further_piece(held)).partition(END)
            self._is_at_end = bool(end)

    async def _further_piece(self, held: HeldByOne) -> bytes:
        piece = await self._piece()
        async with held.reading:
            await asyncio.sleep(0)
        return piece

    async def _piece(self) -> bytes:
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        piece = await self._stream.read(PIECE_BYTES)
        if not piece:
            raise IncompleteReadError(b"", None)
        return piece
