"""Adapters for each kind of cell, one package per kind; `opening` creates the adapter of a cell."""
