"""Lists of servers, one server, and watches of a list."""
