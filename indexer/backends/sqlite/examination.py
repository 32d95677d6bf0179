"""What the file of an index says of itself."""

import os
import sqlite3

from fleetlight.indexer.backends.examination import MAKE, IndexExamination, IndexProblem
from fleetlight.indexer.backends.settings import IndexSettings


def examine(settings: IndexSettings, _timeout_s: float) -> IndexExamination:
    """Whether it is there, and can be written; how full its disk is, the look at files says."""
    server = f"SQLite {sqlite3.sqlite_version}"
    path = settings.path
    if not path.exists():
        return IndexExamination(server, None, [MAKE])
    problems = []
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        problems.append(IndexProblem(f"{path} cannot be written by this account", "run this as who runs the indexer"))
    return IndexExamination(server, str(path), problems)
