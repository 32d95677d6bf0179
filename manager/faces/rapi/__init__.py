"""Requests of the remote API that change something: each submits a job, and answers with its number."""
