"""Query2: from the record of an item to the cells of a row, [status, value] each."""
