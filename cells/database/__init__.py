"""Databases of fleet and cells: connections, rights of accounts, locks that die with their process."""
