"""`fleetlight index`: commands that show the index, fill it, compare it and rebuild it."""
