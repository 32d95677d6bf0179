"""The fields that can be asked for, of every item type, as Ganeti's Query2 and this fleet define them."""
