"""Work on the whole of a cell in the index: sync, comparison, rebuild, retention, removal."""
