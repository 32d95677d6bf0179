"""The address that the API listens at. Here and not in `server`: every command can have this without a web server."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack

# Twelve heartbeats of a stream, and as long as nginx waits for a client that reads nothing.
_TAKES_NOTHING_MS = 60_000


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket bound to an address (port 0: any free one); raises OSError when the address cannot be had.

    is_shared: whether other sockets of this user may have the address as well (SO_REUSEPORT).

    Our own, because uvicorn would end the process where this raises.
    A client that takes nothing of what it is sent for a minute is given up, where the system can do that: one that has
    vanished would otherwise keep its streams, and what they count against, for a quarter of an hour.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections have it from their listener (tcp(7)).
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TAKES_NOTHING_MS)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def listen_together(host: str, port: int, count: int) -> Sequence[socket.socket]:
    """Sockets of one address, for processes among which the system spreads connections; raises OSError as `listen`."""
    with ExitStack() as stack:
        # Alone, so that an address that another program shares is not taken for a free one.
        first = stack.enter_context(listen(host, port))
        listeners = [first]
        if count > 1:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for _ in range(1, count):
            listeners.append(stack.enter_context(listen(host, first.getsockname()[1], is_shared=True)))
        stack.pop_all()
        return listeners


def address_of(listener: socket.socket) -> str:
    """The URL of what is served there."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
