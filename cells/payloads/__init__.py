"""Converts records to the payloads that announce them, and back; pure."""
