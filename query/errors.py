"""Errors in queries.

QueryError
├── ExpressionError               an operator of the filter does not fit its field
│   └── MalformedExpressionError  the filter is malformed, whatever its fields
├── FilterTextError               the text of a filter does not follow its grammar
├── RegularExpressionError        some route cannot run the pattern
└── NotExpressibleError           a compiler cannot express this leaf exactly; another route must answer

fleetlight.resources.errors has the errors of single fields.
"""


class QueryError(Exception):
    """The query cannot be answered."""


class ExpressionError(QueryError):
    """The JSON is not a valid filter; the text names the operator, field or value, and what would be right."""


class MalformedExpressionError(ExpressionError):
    """Lists, operators, numbers of operands or a pattern of the filter are wrong, whatever its fields."""


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
        """The line, a mark under the column, and the reason, to show in three lines."""
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
