"""Moves that fleetlight.manager.operations.balancing has planned, carried out on native cells: each is a job."""
