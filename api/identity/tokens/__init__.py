"""Strategy `tokens`: an embedded small identity service, for development and for single sites.

Users, projects and roles are in one file (`directory`, `directory_file`). A login (`login`) yields a signed token
(`token`), over the part of Keystone's API that clients use (`auth_handlers`, `lookups`).
"""
