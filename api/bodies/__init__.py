"""The JSON bodies of requests: read, checked, and what they may hold at each microversion."""
