"""Ganeti's local query socket (contracts/ganeti-query, 9), over the whole fleet."""
