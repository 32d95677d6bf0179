"""The commands that change native cells, and the processes that carry out the changes."""
