"""The truth: the fleet database, one database per cell, and how cells are read.

`fleet` has what concerns the whole fleet: the registry, mappings, quotas, leases. `kinds` has a package for each kind
of cell, with its adapter: `native` (Fleetlight's own database, with outbox and relay), `nova_db` (Nova's databases),
`nova_api` (a compute API), `ganeti` (a Ganeti cluster). `database` has the SQL that they share, and `fan_out` queries
many cells at once. A change leaves a cell only through its outbox and the relay. Nothing here queries an index, or
serves a request.
"""
