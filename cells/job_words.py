"""Words in the records of jobs, for all code that reads or creates jobs."""

OPCODE = "OP_"
"""The prefix of the names of Ganeti's operations; actions of servers have no prefix."""
ENDED = frozenset({"canceled", "success", "error"})
"""The statuses of jobs that have ended."""
