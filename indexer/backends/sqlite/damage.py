"""Files of the embedded index that cannot be read any more are put aside."""

from datetime import UTC, datetime
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

# Of what SQLite keeps beside the file, the log may have changes that a person wants to see; the other is made anew.
_LOG, _SHARED = "-wal", "-shm"


def put_aside(path: Path) -> None:
    """Rename the file, with its log, so that a new one can be made; raises OSError."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%d%H%M%S%f}")
    for suffix in (_LOG, ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    path.with_name(path.name + _SHARED).unlink(missing_ok=True)
    _log.error("index_file_damaged", path=str(path), kept_as=str(aside))
