"""The nodes of a cell that have an agent: how they are called, and what is remembered of their state.

`rpc` is the one way to nodes: it looks up, or calls those that miss, all at once (docs/decisions/0022). `cache` decides
by the rules of the contract, `stores` keep entries and generations, `client` is one call over HTTPS. `cell_hosts` and
`host_calls` say which agents a step of a job calls for what. Lists ask by `observing`, for what the fields of one
answer need; `refreshing` asks for everything, and `differences` tells what is not as it is to be.
"""
