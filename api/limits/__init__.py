"""Limits on callers: numbers of requests, pages, logins, watches and bytes, and time limits."""
