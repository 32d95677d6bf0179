"""What can go wrong on the way into the index.

IndexerError
├── IndexUnavailableError   the index does not answer, or says it is overloaded: wait and try again
├── IndexRequestError       the index refused a request as such (mapping, rights): a person must look
└── MalformedMessageError   the message can never be indexed: to the dead letters, with the reason
    └── UnsupportedVersionError   a newer major version of a payload
"""


class IndexerError(Exception):
    """Something went wrong on the way into the index."""


class IndexUnavailableError(IndexerError):
    """The index backend cannot be used now; trying again later may succeed."""


class IndexRequestError(IndexerError):
    """The index backend refused the request, and would again."""


class MalformedMessageError(IndexerError):
    """The message can never be indexed; the text says what is wrong where."""


class UnsupportedVersionError(MalformedMessageError):
    """The payload has a newer major version than this indexer reads."""
