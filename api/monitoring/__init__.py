"""Addresses that Prometheus reads: instances as gauges, and as targets."""
