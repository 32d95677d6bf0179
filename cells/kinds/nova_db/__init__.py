"""Reads the databases of a Nova deployment, and never writes to them (contracts/nova-db).

The cell databases have the instances. The API database has the cells, the cell of each instance, the requests for their
creation (request specs), and servers that are in no cell yet (build requests).
"""
