"""The scheduler for programs of administrators: which hosts it would choose, and where there is room."""
