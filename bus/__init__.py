"""The message bus of a cell, by kombu: links, topology, flow control, accounts on the broker."""
