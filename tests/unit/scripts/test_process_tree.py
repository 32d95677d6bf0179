"""What benches say that processes use."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.process_tree import memory_mib, open_things, processor_s

# A child with a socket and a thread waits beside its parent, until there is nothing to read any more.
_CHILD = """
import socket, sys, threading
held = bytearray(64 * 2**20)
threading.Thread(target=sys.stdin.read).start()
waiting = socket.socket()
print("ready", flush=True)
"""
_PARENT = f"""
import subprocess, sys
for _ in range(10**6): pass
sys.exit(subprocess.call([sys.executable, "-c", {_CHILD!r}]))
"""


@pytest.fixture(scope="module")
def parent() -> Iterator[int]:
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid


def test_what_a_process_has_started_counts_as_its_own(parent: int) -> None:
    opened = open_things(parent)
    # Two have standard input, output and error open; the child reads in a thread of its own.
    assert (opened.threads, opened.files, opened.connections) == (3, 7, 1)
    assert memory_mib(parent) > 64
    assert processor_s(parent) > 0


def test_a_process_that_has_ended_uses_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert (processor_s(process.pid), memory_mib(process.pid), open_things(process.pid).files) == (0, 0, 0)
