"""A cell that is the compute API of other software: our account there, requests, and servers as records."""
