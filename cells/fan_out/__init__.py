"""Queries many cells at once, each within a deadline."""
