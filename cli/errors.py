"""What a command ends with when it cannot do what was asked.

CommandError               exit code 1: what was asked failed
└── ConfigurationError     exit code 2: what was asked, or how the fleet is configured, makes no sense

Neither ever shows a traceback: the text is all that a person needs. A cell, a user or a role that is named and is not
there is wrong usage too. Ctrl-C and SIGTERM end a command with exit code 130.
"""

INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""


class CommandError(Exception):
    """The command failed; the text says what failed and, where there is one, the way out."""

    exit_code = 1


class ConfigurationError(CommandError):
    """The arguments or the configuration are wrong; the text names the key, the value and what is allowed."""

    exit_code = 2
