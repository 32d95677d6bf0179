"""Errors of agents and of certificates.

AgentError
├── CertificateError         a file has no certificate or key, or both do not match
├── CallRefusedError         the call or its arguments are invalid; nothing was done
├── CallUnderWayError        an earlier request with the key is still being carried out
└── DriverError              the host cannot carry out the call; the text is the answer
    └── UnknownGuestError        the host has no such guest
"""


class AgentError(Exception):
    """An error of a host's agent, or of its certificate."""


class CertificateError(AgentError):
    """A certificate, a key or an authority cannot be used."""


class CallRefusedError(AgentError):
    """The agent refuses the call, and has done nothing."""


class CallUnderWayError(AgentError):
    """An earlier request with this key is still being carried out."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the call with the key '{key}' is under way")


class DriverError(AgentError):
    """The host could not carry out the call."""


class UnknownGuestError(DriverError):
    """The host has no guest named `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no instance '{name}' here")
        self.name = name
