"""Power states of guests, by Nova's numbers (contracts/nova-db, section 9); 2 and 5 were never used."""

NO_STATE, RUNNING, PAUSED, SHUT_DOWN, CRASHED, SUSPENDED = 0, 1, 3, 4, 6, 7
