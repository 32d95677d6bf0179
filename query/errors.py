"""What can be wrong with a question.

QueryError
├── UnknownFieldError       no such field, or not one that can be used this way
├── FilterValueError        the value does not fit the kind of the field
├── RegularExpressionError  the pattern is not one that every route can run
└── NotExpressibleError     a compiler cannot express this leaf exactly; another route must answer
"""


class QueryError(Exception):
    """A question that cannot be answered as asked."""


class UnknownFieldError(QueryError):
    """`field` does not exist, or cannot be used for `purpose` ("filter", "sort")."""

    def __init__(self, field: str, purpose: str) -> None:
        super().__init__(f"unknown field '{field}' to {purpose} by")
        self.field = field
        self.purpose = purpose


class FilterValueError(QueryError):
    """`value` does not fit the kind of `field`."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"cannot compare field '{field}' with {value!r}: expected {expected}")
        self.field = field
        self.value = value


class RegularExpressionError(QueryError):
    """`pattern` is not a regular expression that Fleetlight runs (RE2 syntax: no look-around, no references)."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"'{pattern}' is not a usable regular expression: {reason}")
        self.pattern = pattern
        self.reason = reason


class NotExpressibleError(QueryError):
    """The compiler for `target` cannot express `what` exactly, and an approximation would give other rows."""

    def __init__(self, target: str, what: str) -> None:
        super().__init__(f"{target} cannot express {what} exactly")
        self.target = target
        self.what = what
