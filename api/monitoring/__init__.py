"""What Prometheus reads of the fleet: instances as gauges, and as targets."""
