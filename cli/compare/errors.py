"""How `fleetlight compare` ends besides other commands.

CommandError
└── NotReachableError     exit code 3: one of both APIs cannot be reached
"""

from fleetlight.cli.errors import CommandError


class NotReachableError(CommandError):
    """One of the APIs cannot be reached, or stopped answering; the comparison has no result."""

    exit_code = 3
