"""The fields of queries, for every item type, as Ganeti's Query2 and this program define them."""
