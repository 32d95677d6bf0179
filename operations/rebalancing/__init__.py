"""Moves that fleetlight.operations.balancing has planned, carried out on native cells: each is a job."""
