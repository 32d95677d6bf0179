"""State of the file of an SQLite index."""

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
        remedy = "run this as the user that runs the indexer"
        problems.append(IndexProblem(f"{path} cannot be written by this account", remedy))
    return IndexExamination(server, str(path), problems)
