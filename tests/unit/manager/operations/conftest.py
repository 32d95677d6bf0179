"""Databases for the tests of operations."""

from tests.support.fleets.acting_cell import acting
from tests.support.fleets.cell_databases import cell, engine, fleet

__all__ = ["acting", "cell", "engine", "fleet"]
