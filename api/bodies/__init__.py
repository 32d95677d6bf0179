"""The JSON bodies of requests: reading, checking, and their fields at each microversion."""
