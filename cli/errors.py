"""The errors with which a command ends.

CommandError               exit code 1: what was asked failed
└── ConfigurationError     exit code 2: what was asked, or how the fleet is configured, makes no sense

Neither ever shows a traceback: its text tells a person all there is to know. If a named cell, user or role does not
exist, that is wrong usage too. Ctrl-C and SIGTERM end a command with exit code 130.
"""

INTERRUPTED = 130
"""The exit code that shells report for a program that Ctrl-C ended."""


class CommandError(Exception):
    """The command failed; the text says what failed and, if possible, what to do."""

    exit_code = 1


class ConfigurationError(CommandError):
    """The arguments or the configuration are wrong; the text names the key, the value and what is allowed."""

    exit_code = 2
