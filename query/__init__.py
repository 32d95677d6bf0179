"""Queries: the filter tree, the order and the page, and their compilers to SQL, Elasticsearch's DSL and Python.

`filters`, `sort` and `page` are the parts of a request; `operators` has one class with everything about each operator;
`to_sql`, `to_dsl` and `evaluate` walk over trees without knowing operators. Nothing here opens a connection.
"""
