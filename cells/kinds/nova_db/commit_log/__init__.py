"""Follows the log of a database server of Nova, which names the instances of each commit, in order and without a hole.

Values of rows are never taken from the log: it only names the instances to read again (docs/decisions/0013).
"""
