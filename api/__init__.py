"""What programs call over HTTP.

`http` is what all services share. `compute` is the compute API on top of `listing`, `identity` says who is calling, and
`image` is the little of another service that clients of compute need. `app` puts everything together. Nothing here
writes to an index.
"""
