"""Databases of fleet and cells: connections, who may do what there, locks that die with their process."""
