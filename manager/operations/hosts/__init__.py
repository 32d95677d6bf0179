"""Changes of the hosts of native cells: services, nodes, inventories, addresses of agents."""
