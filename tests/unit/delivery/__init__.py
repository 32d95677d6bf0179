"""Deliveries: what is pure in them."""
