"""How a list includes what its caller has done or seen: tokens, and what is noted of changes without being asked."""
