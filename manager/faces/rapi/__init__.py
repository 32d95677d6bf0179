"""Changes by the remote API: each request submits a job, and answers with its number."""
