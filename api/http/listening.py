"""Listening sockets. This module does without a web server, unlike `server`, so every command can import it."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack

# Twelve heartbeats of a stream, and the time that nginx waits for a client that reads nothing.
_TAKES_NOTHING_MS = 60_000


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Bind a socket to an address (port 0: any free port). Raises OSError when that fails; uvicorn would exit instead.

    is_shared: whether other sockets of this user may bind the same address (SO_REUSEPORT).
    Where the system can, it closes connections whose client takes nothing for a minute: a vanished client would
    otherwise keep its streams, and their slots, for a quarter of an hour.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit the option from their listener (tcp(7)).
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TAKES_NOTHING_MS)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def listen_together(host: str, port: int, count: int) -> Sequence[socket.socket]:
    """Bind `count` sockets to one address; the system spreads connections over them. Raises OSError as `listen`."""
    with ExitStack() as stack:
        # Bind once without sharing first, to detect another program that shares the address.
        first = stack.enter_context(listen(host, port))
        listeners = [first]
        if count > 1:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for _ in range(1, count):
            listeners.append(stack.enter_context(listen(host, first.getsockname()[1], is_shared=True)))
        stack.pop_all()
        return listeners


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listener."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
