"""What every face needs to answer by the fleet: the middleware, access to the cells, and the proof of an answer."""
