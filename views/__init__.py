"""Views of records, as bytes that faces show: pure functions."""
