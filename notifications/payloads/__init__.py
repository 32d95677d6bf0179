"""The payloads: one class for each, which is the only list of its fields.

`instance`, `parts`, `resources` and `request_spec` are Nova's, `selection` is the scheduler's answer, `fleetlight` has
our own.
"""
