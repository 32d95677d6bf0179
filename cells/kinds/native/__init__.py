"""The database of a native cell: its instances, hosts and items, and the outbox that announces their changes."""
