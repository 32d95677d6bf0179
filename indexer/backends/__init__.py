"""The index backends: one small interface (`base`), an implementation per store; `opening` makes the configured one.

Nothing is imported here, so that reading the settings does not import SQLite's half of the package.
"""
