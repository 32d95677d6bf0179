"""What all of the compute API has in common: microversions, rules, parameters, bodies, errors, routes."""
