"""Carries out on native cells what operations.balancing has planned: each move is a job."""
