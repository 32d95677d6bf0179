"""The compute API of other software: our account there, how it is asked, and what its servers are as records."""
