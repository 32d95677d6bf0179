"""The HTTP face of operators: the board of cells, work on the index, failures, the last hour."""
