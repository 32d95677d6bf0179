"""Where instances go: which cell, and which host in it."""
