"""Watching servers: later changes of a list as server-sent events.

One feed per process (`feed`) follows the changelogs of the cells and hands each change to every watch. A watch
(`watch`) buffers the events for its caller. `positions` encodes where a watch resumes after a break.
"""
