"""The faces of the fleet: what programs call over HTTP and sockets.

Each face is a folder with a module `routes`: `compute` (Nova's API), `rapi` (Ganeti's remote API), `luxi` (Ganeti's
socket), `query`, `scheduling`, `explaining`, `identity` (our own, and authentication by others) and `image` (the little
of another service that clients of compute need). None imports another, but where the contract of imports says why.
They share `http`, `bodies` (of requests), `limits` (on callers) and `shared` (the middleware of a request, access to
cells, the proof of an answer). `services` has what they answer from, and `app` puts everything together. Nothing here
writes to an index.
"""
