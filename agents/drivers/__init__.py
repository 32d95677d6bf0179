"""What an agent does its work by: one driver for each kind of host."""
