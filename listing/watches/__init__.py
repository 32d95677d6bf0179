"""Watching servers: what changes after a moment, as server-sent events.

One feed for each process follows the changelogs of the cells (`feed`) and hands each change to every watch; a watch
(`watch`) keeps the events for its caller, in a bounded buffer; `positions` is what a watch goes on from after a break.
"""
