"""The truth: the fleet database, one database per cell, and how a cell is read.

`fleet` is what belongs to the whole fleet: the registry, mappings, quotas, leases. `kinds` has a room for each kind of
cell, with its adapter: `native` (Fleetlight's own database, with outbox and relay), `nova_db` (Nova's databases),
`nova_api` (a compute API). `database` is what they share of SQL, and `fan_out` asks many cells at once. A change leaves
a cell only through its outbox and the relay. Nothing here asks an index, or serves a request.
"""
