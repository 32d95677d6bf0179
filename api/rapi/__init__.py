"""Ganeti's remote API (contracts/ganeti-rapi): what reads, over the whole fleet at `/2` and over one cell."""
