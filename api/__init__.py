"""The faces: what people and programs call.

`listing` decides which sources answer a list and merges them, `watching` tells what changes in one; `compute` is the
compute API on top of both, and `image` the little of another one that its clients need. `identity` says who is calling.
`app` puts everything together. Nothing here writes to an index.
"""
