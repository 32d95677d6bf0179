"""The face `/fleetlight/subscriptions`: saved queries whose changes are delivered to a target."""
