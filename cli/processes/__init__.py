"""The processes: all below one parent (`fleetlight up`), or each by itself.

`up` and `api` are parents: they prepare everything and hold the sockets of the API, but serve nothing. `supervising`
forks children in stages, restarts those that die, and stops them in order. `serving` is a child that serves the API.
Each process has a Unix socket for requests of the others (health, metrics, orders), and `summing` combines the gauges
of several processes (docs/decisions/0027).
"""
