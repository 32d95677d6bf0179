"""Faults on real servers under a steady load, and what was lost by them: for `scripts/bench faults` and for the tests.

Each fault is written once, in `faults`. What is random follows from a seed: the operations, and after how many of them
something breaks. How the threads and processes of a run interleave does not, so a seed repeats the story, not the race.
"""
