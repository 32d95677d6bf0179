"""Query2: from the record of an item to the values of a row (its cells), each a pair [status, value]."""
