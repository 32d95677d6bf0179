"""One class for each operator of a filter, with its fields, negation, SQL, DSL, and evaluation in Python.

A module has operators that share something. `fleetlight.query.filters` lists all operators.
"""
