"""An instance as callers of the compute API see it: rendered once, when it changes."""
