"""A simulated fleet for demonstrations and tests: its instances, and the changes of them."""
