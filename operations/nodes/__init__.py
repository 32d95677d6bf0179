"""The nodes of a cell that have an agent: how they are called, and what is remembered of their state."""
