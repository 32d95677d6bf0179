"""Query2 in JSON, for every client: `/fleetlight/query` and `/fleetlight/query/fields`."""
