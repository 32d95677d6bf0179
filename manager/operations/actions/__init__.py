"""What is done to instances of native cells: accepted, queued, and carried out step by step."""
