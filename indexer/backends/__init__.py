"""The index backends: one small interface (`base`), an implementation per store; `opening` makes the configured one.

Nothing is imported here: who reads the settings does not need SQLite's half of the package.
"""
