"""Real servers for tests and development: Elasticsearch, RabbitMQ, PostgreSQL and MariaDB.

Standard library only. A server is looked for at a URL in the environment, then through Docker, then in local packages.
"""
