"""The truth: the fleet database, one database per cell, what changes them, and how a cell is read.

`items` is what callers see of an instance, and what an index keeps of it. `fleet` is what belongs to the whole fleet,
`native` the database of a native cell, `actions` what is done there, `simulation` who does it for demonstrations. A
cell is read only through its adapter (`adapters`), one of Nova's over `nova` (its databases) or `upstream` (a compute
API); `fan_out` asks many at once. A change leaves a cell only through its outbox and the relay. Nothing here asks an
index, or serves a request.
"""
