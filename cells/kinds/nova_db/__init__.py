"""Reading the databases of a Nova deployment, and nothing but reading (contracts/nova-db).

Its cell databases hold the instances; its API database says which cells there are, which cell an instance is in, what
was asked for at its creation (request specs), and has the servers that no cell has yet (build requests).
"""
