"""The indexer: notifications and rows of cells in, documents of the index out.

`backends` keep and search documents. `transform` makes documents of what cells say, `writing` brings them into the
index, and waits while it is away. `reconcile` makes the index equal to the whole of a cell, and `stream` follows each
cell from start to stop. Each imports only those named before it.
"""
