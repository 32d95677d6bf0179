"""Consistency of a list with what its caller has done or seen: by tokens, and by changes that are noted without one."""
