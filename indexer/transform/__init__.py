"""From what cells say to documents of the index; pure."""
