"""What follows the truth: notifications and rows in, documents out.

`backends` keep and search documents. `transform` makes documents of what cells say, `writing` brings them into the
index, with patience. `upkeep` is work on the whole of a cell, and `followers` follow each cell from start to stop. Each
imports only those named before it.
"""
