"""Between records and the payloads that announce them; pure."""
