"""What things are: fields and their kinds, statuses, times, identifiers. Imports nothing of ours."""
