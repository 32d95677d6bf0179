"""The face `/fleetlight/bulk`: an action on all instances that match a filter, first previewed, then carried out."""
