"""A real pseudo-terminal, for what is shown on terminals only."""

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TextIO


class Terminal:
    """stream: writes to the terminal. It is read all the time: otherwise it takes a page, and who writes more waits."""

    def __init__(self, stream: TextIO, shown_by: int) -> None:
        self.stream = stream
        self._shown_by = shown_by
        self._chunks: list[bytes] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        """What it has shown; all of it once it is closed."""
        return b"".join(self._chunks).decode().replace("\r\n", "\n")

    def shows(self, text: str) -> bool:
        return text in self.text

    def close(self) -> None:
        self.stream.close()
        self._reader.join()
        os.close(self._shown_by)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._shown_by, 65_536)
            except OSError:  # as Linux says that the other end is closed
                return
            if not chunk:
                return
            self._chunks.append(chunk)


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A terminal that is closed with the block."""
    shown_by, ours = pty.openpty()
    with open(ours, "w", encoding="utf-8") as stream:
        made = Terminal(stream, shown_by)
        try:
            yield made
        finally:
            made.close()
