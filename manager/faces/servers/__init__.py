"""Servers are created, changed, acted on; what belongs to them, and what was done to them."""
