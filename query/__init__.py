"""What can be asked: fields, the filter tree, the order, the page, and the compilers of them.

`fields` and `instances` define what an item consists of; `filters`, `sort` and `page` are the request as values;
`to_sql`, `to_dsl` and `evaluate` are the three compilers, side by side. Nothing here opens a connection.
"""
