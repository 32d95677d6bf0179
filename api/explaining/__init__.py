"""Explanations of lists and queries, for administrators: `GET /fleetlight/explain`."""
