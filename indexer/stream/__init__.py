"""Follows cells from start to stop: a follower for each cell, and the service that runs them."""
