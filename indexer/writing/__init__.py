"""Writing to the index, the same for all writers: retries, progress, catching up, reading again."""
