"""Queries: the filter tree, the order and the page, and their compilers to SQL, Elasticsearch's DSL and Python.

`filters`, `sort` and `page` are the request as values; `operators` has all about each operator in one class; `to_sql`,
`to_dsl` and `evaluate` walk over trees, side by side, and know no operator. Nothing here opens a connection.
"""
