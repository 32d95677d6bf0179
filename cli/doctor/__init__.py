"""`fleetlight doctor`: everything asked at once, and for each finding what to do."""
