"""Values as cells of CSV, which people open in spreadsheets."""

_BEGINNINGS_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def no_formula(value: object) -> object:
    """The value for CSV. A text that a spreadsheet takes for a formula gets an apostrophe, which makes it a text.

    Source: OWASP, "CSV Injection".
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINNINGS_OF_FORMULAS) else value
