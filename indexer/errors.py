"""Errors on the way into the index.

IndexerError
├── IndexUnavailableError   the index does not answer, or says it is overloaded: wait and try again
│   ├── IndexAbsentError    there is no index (yet), or nothing of it answers
│   ├── IndexLoginError     the index does not know this process: its key is wrong, or keys cannot be read yet
│   ├── IndexUnsealedError  another program has written to it: wait until it was compared with the cells
│   ├── IndexPausedError    writing is blocked, as for a moment by each rebuild: nothing is wrong unless that lasts
│   └── IndexVersionError   the index is of another version than this program uses: wait until it is rebuilt
├── IndexRequestError       the index refused a request as such (mapping, rights): a person must look
│   ├── IndexDocumentError  one document of it is not what this program writes; the others are
│   ├── IndexQueryError     it refused this one query, and answers others: the cells answer it
│   ├── IndexForbiddenError the index does not let this process do that
│   ├── IndexUnreadableError what is where the index should be is no index, and may belong to another program
│   └── IndexReplacedError  the index is not the one that was prepared: start again from what is saved in the new one
│       └── IndexDamagedError  nor can it be read any more: it is put aside, and made anew
├── CellRestoredError       a cell went back to a backup while it was followed: start again from what it has now
├── LeaseHeldError          another process works on the same cell: wait until that has ended
├── LeaseLostError          the work on a cell was cut off, since another process may do it too
├── ProcessEndedError       a child process that worked on a cell was killed: start again
├── RebuildRunningError     another process rebuilds the index, or holds what a rebuild needs
├── RebuildError            the next index cannot take the place of the current one: a person must look
└── MalformedMessageError   the message can never be indexed: to the dead letters, with the reason
"""

import traceback
from enum import StrEnum

_DETAIL_LENGTH = 1000


def shortened(text: str, length: int) -> str:
    """The text or, if it is too long, its beginning and end, where causes stand, and the length of what is left out."""
    if len(text) <= length:
        return text
    return f"{text[: length // 2]} […{len(text) - length // 2 * 2} characters…] {text[len(text) - length // 2 :]}"


class StopRequestedError(Exception):
    """Interruptible work was told to stop. This is no failure: the same work continues later from where it was."""


class IndexerError(Exception):
    """Base of the errors on the way into the index."""


class IndexUnavailableError(IndexerError):
    """The index cannot be used now; trying again later may succeed."""


class IndexAbsentError(IndexUnavailableError):
    """There is no index, or none of it can answer, as before the first indexer has created it."""


_ACCOUNT = (
    "index.api_key, or index.username and index.password, name the account, and `fleetlight accounts "
    "elasticsearch` makes keys with the rights that a process needs"
)


class IndexLoginError(IndexUnavailableError):
    """The index does not accept this account; `reason` is its answer.

    Right after its start Elasticsearch also refuses valid keys, since it cannot read its keys yet.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; {_ACCOUNT}")
        self.reason = reason


class IndexUnsealedError(IndexUnavailableError):
    """Another program has written to the index, as `reason` says. Lists use it again once this is mended."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: it is not used until it was compared with the cells")
        self.reason = reason


class IndexPausedError(IndexUnavailableError):
    """Writing to the index is blocked: by a rebuild, which soon ends the block, or by an operator."""


class IndexVersionError(IndexUnavailableError):
    """The index `name` has version `version`; this program uses `oldest` to `newest`."""

    def __init__(self, name: str, version: int, oldest: int, newest: int) -> None:
        used = str(newest) if oldest == newest else f"{oldest} to {newest}"
        super().__init__(
            f"the index {name} has version {version}, and this program uses {used}: `fleetlight index rebuild` makes "
            "one of this program's version of it"
            + (", unless a newer program is to be used" if version > newest else "")
        )
        self.version = version


class IndexRequestError(IndexerError):
    """The index refused the request, and would refuse it again."""


class IndexDocumentError(IndexRequestError):
    """The document `document_id` cannot be read, or is not what this program writes under that id, the uuid of an
    instance.
    """

    def __init__(self, document_id: str, reason: str) -> None:
        super().__init__(f"the document {document_id} of the index cannot be read: {reason}")
        self.document_id = document_id

    @classmethod
    def caused_by(cls, error: Exception, document_id: str) -> "IndexDocumentError":
        return cls(document_id, f"{type(error).__name__}: {error}")


class IndexQueryError(IndexRequestError):
    """The index refuses this query alone, as `reason` says, and answers others, so that lists may go on using it.

    kind: the backend's name for the reason, equal for all queries that are refused alike.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"the index refuses this query: {reason}")
        self.kind = kind


class IndexForbiddenError(IndexRequestError):
    """The index does not let this account do that; `reason` is its answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; {_ACCOUNT}")
        self.reason = reason


class IndexUnreadableError(IndexRequestError):
    """The file `name` is not an index; `reason` is the store's message."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"what is at {name} is no index: {reason}; if the file was the index, move it away: a new one is made, and "
            "filled from the cells"
        )
        self.reason = reason


class IndexReplacedError(IndexRequestError):
    """The index `name`, or one that belongs to it, is not the prepared one: no promise about it holds."""

    def __init__(self, name: str, text: str | None = None) -> None:
        super().__init__(
            text
            or f"the index {name}, or one that belongs to it, was removed, restored or replaced while it was written to"
        )
        self.name = name


class IndexDamagedError(IndexReplacedError):
    """The store cannot read the index `name`; `reason` is the store's message."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, f"the index {name} is damaged: {reason}")


class CellRestoredError(IndexerError):
    """The database of the cell named `cell` was restored: the last changes in the index never happened."""

    def __init__(self, cell: str) -> None:
        super().__init__(f"the database of cell '{cell}' was restored from a backup; the index follows it back")
        self.cell = cell


class LeaseHeldError(IndexerError):
    """Another process, `holder`, works on the cell named `cell`, and only one may."""

    def __init__(self, cell: str, holder: str) -> None:
        super().__init__(f"cell '{cell}' is being worked on by {holder}; try again when that has ended")
        self.cell = cell
        self.holder = holder


class LeaseLostError(IndexerError):
    """The lease on the cell named `cell` was lost with the connection to the fleet database."""

    def __init__(self, cell: str) -> None:
        super().__init__(f"the lease on cell '{cell}' was lost with the connection to the fleet database; start again")
        self.cell = cell


class ProcessEndedError(IndexerError):
    """The child process that worked on the cell named `cell` died, as `reason` says."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(
            f"the process that worked on cell '{cell}' ended with {reason}; start again: what is done is not done twice"
        )
        self.cell = cell
        self.reason = reason


class RebuildRunningError(IndexerError):
    """Another process, `holder`, may change which physical index is the current one, and only one may."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the index is being rebuilt by {holder}")
        self.holder = holder


class RebuildError(IndexerError):
    """The rebuild cannot go on, and the index stays as it is; the text says why, and what to do."""


class DeadLetterReason(StrEnum):
    """Why a message can never be indexed; the values are in headers of dead letters and in metrics."""

    MALFORMED = "malformed"
    UNKNOWN_PAYLOAD = "unknown_payload"
    UNSUPPORTED_VERSION = "unsupported_version"
    REJECTED = "rejected"
    UNEXPECTED = "unexpected"  # this program failed on it in an unforeseen way
    TOO_LARGE = "too_large"  # it was not read, and is not kept
    UNDELIVERABLE = "undeliverable"  # the broker gave up on it
    REFUSED = "refused"  # it announces an instance, but is from none of its cell's producers


class MalformedMessageError(IndexerError):
    """The message can never be indexed, for this `reason`; the text says what is wrong where, and may be shortened.

    trace: where this program failed, if that was unforeseen.
    """

    def __init__(self, reason: DeadLetterReason, detail: str, trace: str | None = None) -> None:
        super().__init__(shortened(detail, _DETAIL_LENGTH))
        self.reason = reason
        self.trace = trace

    @classmethod
    def unexpected(cls, error: Exception) -> "MalformedMessageError":
        """For a message on which this program fails although no fault in it is known."""
        frames = traceback.extract_tb(error.__traceback__)
        trace = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        detail = f"{type(error).__name__}: {error}"
        return cls(DeadLetterReason.UNEXPECTED, detail, "\n".join(trace))


class RefusedAnnouncementError(MalformedMessageError):
    """The message announces an instance, but is from none of the producers that its cell takes announcements from."""

    def __init__(self, instance_uuid: str, why: str) -> None:
        super().__init__(DeadLetterReason.REFUSED, why)
        self.instance_uuid = instance_uuid
