"""Adapters for each kind of cell, a package per kind, and `opening`, which makes the adapter of a cell."""
