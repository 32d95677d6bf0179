"""How each kind of cell is asked: a module per kind, and `opening`, which makes the adapter of a cell."""
