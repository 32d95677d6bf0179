"""Moves files of the embedded index out of the way that cannot be read any more."""

from datetime import UTC, datetime
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

# Beside the file SQLite keeps a log, whose changes a person may want to see, and a file that it can recreate.
_LOG, _SHARED = "-wal", "-shm"


def put_aside(path: Path) -> None:
    """Rename the file and its log, so that a new one can be created. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%d%H%M%S%f}")
    for suffix in (_LOG, ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    path.with_name(path.name + _SHARED).unlink(missing_ok=True)
    _log.error("index_file_damaged", path=str(path), kept_as=str(aside))
