"""What operators see and order over HTTP: the board of cells, work on the index, failures, the last hour."""
