"""One page of instances: which sources answer it, and the one merge of them.

See docs/architecture.md, "One merge, many sources".
"""
