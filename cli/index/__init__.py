"""`fleetlight index`: what the index knows, and the work on the whole of it."""
