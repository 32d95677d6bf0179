"""The database of a native cell: its instances, hosts and records, and the outbox that announces what changes."""
