"""The truth: the fleet database, one database per cell, what changes them, and how a cell is read.

A cell is reached only through its adapter (`cells.adapters`); a change leaves a cell only through its outbox and the
relay. Nothing here knows of the index or of a face.
"""
