"""`scripts/bench scale`: how costs grow with the number of instances and of cells."""
