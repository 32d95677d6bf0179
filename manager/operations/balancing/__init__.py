"""How well a cluster of nodes is balanced, which moves improve it, and how much more it can hold; all of it pure."""
