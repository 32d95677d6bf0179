"""`fleetlight doctor`: runs all checks at once, and says for each finding what to do."""
