"""Fixtures and selection rules of all tests; see `tests/support/`."""

from tests.support import examples
from tests.support.servers.browser import browser_context, browser_page, chromium_browser
from tests.support.servers.ganeti_client import ganeti_client
from tests.support.servers.htools import htools
from tests.support.servers.libvirt_binding import libvirt_binding
from tests.support.servers.nova import mariadb_url, nova_deployment, nova_environment, nova_worlds
from tests.support.servers.prometheus import promtool
from tests.support.servers.real_cluster import ganeti_cluster
from tests.support.servers.real_servers import (
    amqp_cell,
    amqp_url,
    elasticsearch_prefix,
    elasticsearch_url,
    new_amqp_cell,
    new_postgresql_database,
    postgresql_database,
    postgresql_url,
    samples_dir,
)
from tests.support.servers.redis_server import redis_url
from tests.support.session.collector import pytest_collection, pytest_collection_finish
from tests.support.session.compiled import compiled_once
from tests.support.session.coroutines import anyio_backend
from tests.support.session.ending import pytest_sessionstart
from tests.support.session.logs import logging_as_before
from tests.support.session.migrated import migrated_each_time, migrated_once
from tests.support.session.programs import chromium, mmdebstrap, nginx, same_names, systemd_analyze
from tests.support.session.selection import (
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

__all__ = [
    "amqp_cell",
    "amqp_url",
    "anyio_backend",
    "browser_context",
    "browser_page",
    "chromium",
    "chromium_browser",
    "compiled_once",
    "elasticsearch_prefix",
    "elasticsearch_url",
    "ganeti_client",
    "ganeti_cluster",
    "htools",
    "libvirt_binding",
    "logging_as_before",
    "mariadb_url",
    "migrated_each_time",
    "migrated_once",
    "mmdebstrap",
    "new_amqp_cell",
    "new_postgresql_database",
    "nginx",
    "nova_deployment",
    "nova_environment",
    "nova_worlds",
    "postgresql_database",
    "postgresql_url",
    "promtool",
    "pytest_collection",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "redis_url",
    "same_names",
    "samples_dir",
    "systemd_analyze",
]

examples.load_profile()
