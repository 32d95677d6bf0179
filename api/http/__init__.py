"""Shared by all faces over HTTP: errors, bodies, query strings, connections. Imports no face."""
