"""Items of a native cell other than instances, as records of the item types of queries."""
