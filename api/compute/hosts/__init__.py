"""Hosts of servers, as availability zones and host statuses."""
