"""The scheduler for programs of administrators: choices of hosts, and allocation candidates."""
