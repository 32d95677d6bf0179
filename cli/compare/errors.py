"""How `fleetlight compare` ends besides other commands.

CommandError
└── NotReachableError     exit code 3: one of both APIs cannot be reached
"""

from fleetlight.cli.errors import CommandError


class NotReachableError(CommandError):
    """One of both APIs cannot be reached, or stopped to answer; nothing is said about differences."""

    exit_code = 3
