"""Errors of hosts, and of certificates.

AgentError
├── CertificateError         a file has no certificate or key, or not the one that belongs to the other
├── CallRefusedError         no such call, or arguments that it does not take: nothing was done
├── CallUnderWayError        the call of that key is being carried out
└── DriverError              the host cannot do it; the text is the answer
    └── UnknownGuestError        it has no such guest
"""


class AgentError(Exception):
    """Something is wrong on a host, or with what it shows of itself."""


class CertificateError(AgentError):
    """A certificate, a key or an authority cannot be used."""


class CallRefusedError(AgentError):
    """The call cannot be made as it came."""


class CallUnderWayError(AgentError):
    """The call with this key is being carried out, for a request that came before."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the call with the key '{key}' is under way")


class DriverError(AgentError):
    """The host could not do what it was called for."""


class UnknownGuestError(DriverError):
    """The host has no guest called `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no instance '{name}' here")
        self.name = name
