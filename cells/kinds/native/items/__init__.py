"""What a native cell has beside instances, as records of the item types of queries."""
