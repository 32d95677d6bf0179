from cells.migrations.environment import run_migrations
from cells.tables import fleet_metadata

run_migrations(fleet_metadata, "fleetlight_fleet_version")
