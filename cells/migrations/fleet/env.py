from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.migrations.environment import run_migrations

run_migrations(fleet_metadata, "fleetlight_fleet_version")
