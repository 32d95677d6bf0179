"""Benchmarks: ratios of things measured interleaved in one run (`scripts/bench`).

Machines are shared and noisy, so no time is ever a goal: a goal is a ratio of our way to a bare one, pair by pair.
"""
