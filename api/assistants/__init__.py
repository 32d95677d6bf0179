"""The face for assistants at `/mcp`: tools of the Model Context Protocol, which only read.

Each tool is one request to the API for whoever calls it, so it sees what its caller may see. Needs the extra `mcp`.
"""
