"""The faces: what people and programs call.

`listing` decides which sources answer a list and merges them; `compute` is the compute API on top of it; `identity`
says who is calling. Nothing here writes to an index.
"""
