"""What projects and their users have besides servers: key pairs, quotas, limits, server groups, usage."""
