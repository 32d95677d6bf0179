"""Ganeti's filters of jobs: which jobs of its operations wait, are rejected, or are few at once."""
