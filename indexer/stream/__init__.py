"""Following cells from start to stop: a follower for each, and the service that keeps them."""
