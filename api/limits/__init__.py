"""What limits callers: how many requests, pages, logins, watches and bytes, and for how long."""
