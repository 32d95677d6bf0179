"""The indexer: it turns notifications and rows of cells into documents of the index.

`backends` store and search documents. `transform` makes documents of notifications and rows. `writing` writes them to
the index, and waits while that is down. `reconcile` makes the index equal to a whole cell. `stream` follows each cell
from start to stop. Each package imports only those named before it.
"""
