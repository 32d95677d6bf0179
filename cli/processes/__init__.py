"""The processes: all of them below one parent (`fleetlight up`), or each by itself.

`up` and `api` are parents: each prepares everything, holds the sockets of the API and serves nothing. `supervising`
forks children in stages, starts those again that die, and stops them in order. `serving` is a child that serves the
API. What processes ask each other (health, metrics, orders) goes to a Unix socket of each, and `summing` has the
rule by which the gauges of several are one (docs/decisions/0027).
"""
