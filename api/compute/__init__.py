"""The compute API `/v2.1`: microversions, parameters, routes and bodies (contracts/nova-servers)."""
