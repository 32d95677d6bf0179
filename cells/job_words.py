"""Words that say of a job what it is, to all that read or make jobs."""

OPCODE = "OP_"
"""Begins the names of Ganeti's operations; those of the actions of servers have no such beginning."""
ENDED = frozenset({"canceled", "success", "error"})
"""The statuses of jobs that are over."""
