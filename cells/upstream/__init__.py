"""Access to APIs of other software that are cells: addresses, our accounts there, and requests over HTTP."""
