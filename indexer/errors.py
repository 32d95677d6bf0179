"""What can go wrong on the way into the index.

IndexerError
├── IndexUnavailableError   the index does not answer, or says it is overloaded: wait and try again
├── IndexRequestError       the index refused a request as such (mapping, rights): a person must look
└── MalformedMessageError   the message can never be indexed: to the dead letters, with the reason
"""

from enum import StrEnum


class IndexerError(Exception):
    """Something went wrong on the way into the index."""


class IndexUnavailableError(IndexerError):
    """The index backend cannot be used now; trying again later may succeed."""


class IndexRequestError(IndexerError):
    """The index backend refused the request, and would again."""


class DeadLetterReason(StrEnum):
    """Why a message can never be indexed; the words are in the headers of dead letters and in metrics."""

    MALFORMED = "malformed"
    UNKNOWN_PAYLOAD = "unknown_payload"
    UNSUPPORTED_VERSION = "unsupported_version"
    REJECTED = "rejected"


class MalformedMessageError(IndexerError):
    """The message can never be indexed, for this `reason`; the text says what is wrong where."""

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
