"""The address that the API listens at. Here and not in `server`: every command can have this without a web server."""

import socket


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address (port 0: any free one); raises OSError when the address cannot be had.

    Our own, because uvicorn would end the process where this raises.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL of what is served there."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
