"""Execution of moves planned by fleetlight.manager.operations.balancing on native cells, each as a job."""
