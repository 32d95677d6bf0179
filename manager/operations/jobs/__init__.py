"""The queue of jobs, and the worker that carries them out step by step."""
