"""The part of the image API that clients read to create a server (contracts/nova-rest, section 6)."""
