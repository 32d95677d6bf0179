"""The log of a database server of Nova's: which instances each commit has touched, in order and without a hole.

What a row says is never taken from the log: it only names what has to be read again (docs/decisions/0013).
"""
