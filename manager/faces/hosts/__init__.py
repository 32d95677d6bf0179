"""The hosts of native cells: services, nodes, aggregates and the usage audit log."""
