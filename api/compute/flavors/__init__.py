"""Flavors, the projects that may use them, and their extra specs."""
