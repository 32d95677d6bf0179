"""Tools of the checkout; the shell scripts beside this file are their entrances."""
