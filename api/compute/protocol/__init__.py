"""The protocol of the compute API: the table of routes, parameters, pages and times."""
