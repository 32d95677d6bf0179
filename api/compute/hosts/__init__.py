"""Where servers run: services, hypervisors, availability zones."""
