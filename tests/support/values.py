"""Values that tests of many faces give."""

IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"
"""The uuid of an image that no service has: a cell keeps what it was given."""
