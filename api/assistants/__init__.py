"""The face for assistants at `/mcp`: tools of the Model Context Protocol, which only read.

Each tool is one request to the API with its caller's login, so it sees what the caller may see. Needs the extra `mcp`.
"""
