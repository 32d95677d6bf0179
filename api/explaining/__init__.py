"""How lists and queries come about, for administrators: `GET /fleetlight/explain`."""
