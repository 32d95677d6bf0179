"""The items of a native cell beside instances, as records of the item types of queries."""
