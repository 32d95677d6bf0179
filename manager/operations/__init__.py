"""Changes of native cells: jobs and their worker, actions of servers, scheduling, simulation."""
