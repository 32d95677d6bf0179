"""The hosts of native cells: their services and nodes, the aggregates they are in, and what was done on them."""
