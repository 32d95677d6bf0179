from fleetlight.cells.migrations.environment import run_migrations
from fleetlight.cells.tables import cell_metadata

run_migrations(cell_metadata, "fleetlight_cell_version")
