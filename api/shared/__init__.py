"""Shared by the faces that answer from the fleet: the middleware, access to cells, and the proof of an answer."""
