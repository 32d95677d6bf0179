"""The face `/fleetlight/bulk`: an action on all instances that a filter lets pass, previewed, then carried out."""
