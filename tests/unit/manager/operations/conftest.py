"""Databases for the tests of operations."""

from tests.support.fleets.cell_databases import cell, engine, fleet

__all__ = ["cell", "engine", "fleet"]
