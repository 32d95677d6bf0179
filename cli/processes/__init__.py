"""The processes: all of them in one (`fleetlight up`), or each by itself."""
