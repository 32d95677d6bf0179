"""Errors in queries.

QueryError
├── ExpressionError               the filter has an operator that does not fit its field
│   └── MalformedExpressionError  the filter is not written as one
├── FilterTextError               the text of a filter does not follow its grammar
├── RegularExpressionError        the pattern is not one that every route can run
└── NotExpressibleError           a compiler cannot express this leaf exactly; another route must answer

What can be wrong with one field of it: fleetlight.resources.errors.
"""


class QueryError(Exception):
    """A query that cannot be answered as it is."""


class ExpressionError(QueryError):
    """A filter in JSON that is not one; the text says which operator, field or value, and what would be right."""


class MalformedExpressionError(ExpressionError):
    """It is wrong whatever fields there are: its lists, its operators, how many operands they have, or a pattern."""


class FilterTextError(QueryError):
    """The filter `text` cannot be read from `column` (from 1) of `line` (from 1) on, for that `reason`."""

    def __init__(self, text: str, line: int, column: int, reason: str) -> None:
        super().__init__(f"Failed to parse query filter '{text}': {reason} (line {line}, column {column})")
        self.text = text
        self.line = line
        self.column = column
        self.reason = reason

    @property
    def details(self) -> tuple[str, str, str]:
        """The line, a mark under the column, and the reason, to be shown below each other."""
        lines = self.text.splitlines() or [""]
        shown = lines[min(self.line, len(lines)) - 1]
        return shown, f"{' ' * (self.column - 1)}^", self.reason


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
