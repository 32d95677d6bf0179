"""The nodes of a cell with agents: calls of them, and the cache of their state.

All calls go through `rpc`, which looks nodes up in the cache and calls the others concurrently (docs/decisions/0022).
`cache` implements the rules of the contract, `stores` keep entries and generations, and `client` makes one call over
HTTPS. `cell_hosts` and `host_calls` choose the calls of agents for a step of a job. Lists use `observing`, for the
fields of one answer; `refreshing` asks for the whole state, and `differences` records deviations from the cell's rows.
"""
