"""Changes of native cells over HTTP: faces of their own, and routes of the compute and the remote API."""
