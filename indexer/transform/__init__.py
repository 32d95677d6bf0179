"""Transformation of messages and rows of cells to documents of the index; pure."""
