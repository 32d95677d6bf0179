"""Errors in the use of fields, of commands and of configuration.

FieldError
├── UnknownFieldError  no such field, or not one that can be used this way
└── FilterValueError   the value does not fit the kind of the field
UsageError             an argument of a command, or a setting, cannot be used
"""


class FieldError(Exception):
    """A field cannot be used as asked."""


class UnknownFieldError(FieldError):
    """`field` does not exist, or cannot be used for `purpose` ("filter", "sort")."""

    def __init__(self, field: str, purpose: str) -> None:
        super().__init__(f"unknown field '{field}' to {purpose} by")
        self.field = field
        self.purpose = purpose


class FilterValueError(FieldError):
    """`value` does not fit the kind of `field`."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"cannot compare field '{field}' with {value!r}: expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class UsageError(Exception):
    """A command ends with the exit code for wrong usage; the text says what would be right."""
