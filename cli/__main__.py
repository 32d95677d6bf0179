"""`python -m cli`: the `fleetlight` command."""

from cli.main import main

main()
