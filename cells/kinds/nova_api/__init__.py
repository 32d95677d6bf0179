"""The compute API of other software: whom we are there, how it is asked, and what its servers are as records."""
