"""Resources of projects and users besides servers: key pairs, quotas, limits, server groups, usage."""
