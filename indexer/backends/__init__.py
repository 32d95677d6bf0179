"""The index backends: a small interface (`base`), one implementation per store; `opening` opens the configured one.

Nothing is imported here, so that reading the settings does not import SQLite's half of the package.
"""
