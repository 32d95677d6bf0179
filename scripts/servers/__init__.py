"""Real servers for tests and development: Elasticsearch, RabbitMQ and PostgreSQL.

Standard library only. A server is looked for at a URL in the environment, then through Docker, then in local packages.
"""
