"""Actions on instances of native cells: accepted, queued, and carried out step by step."""
