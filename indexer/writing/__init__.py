"""What all writers to the index share: retries, leases, progress, catching up, reading rows again."""
