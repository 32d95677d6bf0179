"""What can be wrong with a question.

QueryError
├── RegularExpressionError  the pattern is not one that every route can run
└── NotExpressibleError     a compiler cannot express this leaf exactly; another route must answer

What can be wrong with one field of it: resources.errors.
"""


class QueryError(Exception):
    """A question that cannot be answered as asked."""


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
