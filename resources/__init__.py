"""Fields and their kinds, statuses, times and identifiers. Imports no other package of Fleetlight."""
