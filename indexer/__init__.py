"""What follows the truth: notifications and rows in, documents out.

`documents` and `view` are pure; `backends` write and search; `consumer`, `catch_up` and `bulk_sync` feed them.
"""
