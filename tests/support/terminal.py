"""A real pseudo-terminal, for what is shown on terminals only."""

import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TextIO


class Terminal:
    """stream: writes to the terminal. text: what was shown, once the block that made it has ended."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text = ""


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A terminal that somebody reads all the time: otherwise it takes a page, and whoever writes more would wait."""
    shown_by, ours = pty.openpty()
    with open(ours, "w", encoding="utf-8") as stream:
        made = Terminal(stream)
        chunks: list[bytes] = []
        reader = Thread(target=lambda: chunks.extend(_until_closed(shown_by)))
        reader.start()
        try:
            yield made
        finally:
            stream.close()
            reader.join()
            os.close(shown_by)
            made.text = b"".join(chunks).decode().replace("\r\n", "\n")


def _until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # as Linux says that the other end is closed
            return
        if not chunk:
            return
        yield chunk
