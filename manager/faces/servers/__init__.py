"""Creation, changes and actions of servers, their parts, and their instance actions."""
