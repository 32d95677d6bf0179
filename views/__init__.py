"""What faces show: pure functions from a record to bytes."""
