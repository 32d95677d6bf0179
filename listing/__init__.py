"""One page of instances: which sources answer it, and the one merge of them (DESIGN, "One merge, many sources")."""
