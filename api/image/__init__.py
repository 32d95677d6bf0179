"""The image API, read only: as much of it as clients ask for to create a server (contracts/nova-rest, section 6)."""
