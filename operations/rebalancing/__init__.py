"""Carries out on native cells what fleetlight.operations.balancing has planned: each move is a job."""
