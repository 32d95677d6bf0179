"""The message bus of a cell, over kombu: links, topology, flow control, and accounts on the broker."""
