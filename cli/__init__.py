"""The `fleetlight` command: what people type, and the processes that it starts.

Each group of commands is a module, or a package of them; `app` puts them together. `settings` reads the configuration,
once for each process, and hands its sections down.
"""
