"""The queue of accepted work and the worker that carries it out, step by step."""
