"""Errors of the server scripts.

ServerError             wide: what the command line prints, without a traceback
├── NotInstalledError   a program that is needed is not here; `advice` says how to get it
└── StartError          it was started and did not become ready; the message ends with the tail of its output
"""


class ServerError(Exception):
    """A server cannot be had. `server` is its name."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(f"{server}: {message}")
        self.server = server


class NotInstalledError(ServerError):
    """`what` was not found on this machine."""

    def __init__(self, server: str, what: str, advice: str) -> None:
        super().__init__(server, f"{what} was not found. {advice}")
        self.what = what
        self.advice = advice


class StartError(ServerError):
    """The process ended or did not answer in time. `output_tail` is the end of what it printed."""

    def __init__(self, server: str, reason: str, output_tail: str) -> None:
        super().__init__(server, f"{reason}\n--- the end of its output ---\n{output_tail}")
        self.output_tail = output_tail
