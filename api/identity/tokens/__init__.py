"""Strategy `tokens`: an embedded small identity service, for development and for single sites.

Users, projects and roles are in one file (`directory`, `directory_file`). Who logs in (`login`) gets a signed token
(`token`), over the part of Keystone's API that clients use (`web`, `auth_handlers`, `lookups`).
"""
