"""Delivers the events of subscriptions to their targets: one process, or several that share the subscriptions."""
