"""Consistency of a list with its caller's own changes: by tokens, and by changes that the API notes by itself."""
