"""One class for each operator of a filter: which fields it fits, its negation, its SQL, its DSL, its truth in Python.

A module holds a family: operators that share something. `fleetlight.query.filters` lists them all.
"""
