"""What all who write to the index have in common: patience, progress, catching up, reading again."""
