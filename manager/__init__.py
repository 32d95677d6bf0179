"""The manager of native cells: what changes them, and what runs on their hosts.

The index and the lists know nothing of it.
"""
