"""`python -m fleetlight.cli`: the `fleetlight` command."""

from fleetlight.cli.main import main

main()
