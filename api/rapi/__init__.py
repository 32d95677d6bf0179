"""The reading part of Ganeti's remote API (contracts/ganeti-rapi), for the whole fleet at `/2`, and for one cell."""
