"""What a test may need besides this checkout: real servers and third-party samples."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3]

ALL_VARIABLE = "FLEETLIGHT_TEST_ALL"
"""When set to 1, everything below has to be there and no test may be skipped (`scripts/test --day`, `--night`)."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Something from outside that some tests need.

    marker: of the tests that need it; a test that asks for `fixture` gets the marker by itself.
    variable: environment variable with its URL or path.
    """

    marker: str
    title: str
    fixture: str
    variable: str

    def locate(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """URL or path of it, or None if it is not to be had here."""
        return environment.get(self.variable) or None


@dataclass(frozen=True, slots=True)
class Folder(Requirement):
    """A folder, or a file, that also has a usual place."""

    default: Path

    def locate(self, environment: Mapping[str, str] = os.environ) -> str | None:
        folder = Path(environment.get(self.variable) or self.default)
        return str(folder) if folder.exists() else None


ELASTICSEARCH = Requirement("elasticsearch", "Elasticsearch", "elasticsearch_url", "FLEETLIGHT_TEST_ELASTICSEARCH_URL")
RABBITMQ = Requirement("rabbitmq", "RabbitMQ", "amqp_url", "FLEETLIGHT_TEST_AMQP_URL")
POSTGRESQL = Requirement("postgresql", "PostgreSQL", "postgresql_url", "FLEETLIGHT_TEST_POSTGRESQL_URL")
MARIADB = Requirement("mariadb", "MariaDB", "mariadb_url", "FLEETLIGHT_TEST_MARIADB_URL")
REDIS = Requirement("redis", "Redis", "redis_url", "FLEETLIGHT_TEST_REDIS_URL")
GANETI = Requirement("ganeti", "a Ganeti cluster", "ganeti_cluster", "FLEETLIGHT_TEST_GANETI_URL")
NOVA = Folder(
    "nova",
    "Nova itself (scripts/nova-environment)",
    "nova_environment",
    "FLEETLIGHT_TEST_NOVA",
    default=_CHECKOUT / ".venv-nova" / "ready",
)
SAME_NAMES = Folder(
    "same_names",
    "distributions with the names of our folders (scripts/test --day fetches them)",
    "same_names",
    "FLEETLIGHT_TEST_SAME_NAMES",
    default=_CHECKOUT / "build" / "same-names",
)
SAMPLES = Folder(
    "samples",
    "third-party samples",
    "samples_dir",
    "FLEETLIGHT_SAMPLES",
    default=_CHECKOUT.parent / "shared" / "samples",
)
GANETI_CLIENT = Folder(
    "ganeti_client",
    "Ganeti's client of its remote API (the package python3-ganeti-rapi)",
    "ganeti_client",
    "FLEETLIGHT_TEST_GANETI_CLIENT",
    # It is a package of the system's Python, and so is what it needs.
    default=Path("/usr/lib/python3/dist-packages/ganeti/rapi"),
)

HTOOLS = Folder(
    "htools",
    "Ganeti's hbal and hspace (the package ganeti-htools-3.0)",
    "htools",
    "FLEETLIGHT_TEST_HTOOLS",
    default=Path("/usr/lib/ganeti/3.0/usr/bin"),
)

LIBVIRT = Folder(
    "libvirt",
    "libvirt's Python binding (the package python3-libvirt)",
    "libvirt_binding",
    "FLEETLIGHT_TEST_LIBVIRT",
    # One file of it; it has no folder of its own.
    default=Path("/usr/lib/python3/dist-packages/libvirt.py"),
)

PROMETHEUS = Folder(
    "prometheus",
    "Prometheus and promtool (the package prometheus)",
    "promtool",
    "FLEETLIGHT_TEST_PROMTOOL",
    default=Path("/usr/bin/promtool"),
)

SYSTEMD = Folder(
    "systemd",
    "systemd-analyze (the package systemd)",
    "systemd_analyze",
    "FLEETLIGHT_TEST_SYSTEMD_ANALYZE",
    default=Path("/usr/bin/systemd-analyze"),
)
NGINX = Folder(
    "nginx", "nginx (the package nginx-light)", "nginx", "FLEETLIGHT_TEST_NGINX", default=Path("/usr/sbin/nginx")
)
CHROMIUM = Folder(
    "chromium",
    "Chromium (the package chromium)",
    "chromium",
    "FLEETLIGHT_TEST_CHROMIUM",
    default=Path("/usr/bin/chromium"),
)
DEBIAN = Folder(
    "debian",
    "what makes and boots a Debian or an image (the packages mmdebstrap, systemd-container and buildah)",
    "mmdebstrap",
    "FLEETLIGHT_TEST_MMDEBSTRAP",
    default=Path("/usr/bin/mmdebstrap"),
)

REQUIREMENTS = (
    ELASTICSEARCH,
    RABBITMQ,
    POSTGRESQL,
    MARIADB,
    REDIS,
    GANETI,
    NOVA,
    SAMPLES,
    GANETI_CLIENT,
    HTOOLS,
    LIBVIRT,
    PROMETHEUS,
    SYSTEMD,
    NGINX,
    CHROMIUM,
    DEBIAN,
    SAME_NAMES,
)


def missing_requirements(environment: Mapping[str, str] = os.environ) -> list[Requirement]:
    """Those that are not to be had in this environment."""
    return [requirement for requirement in REQUIREMENTS if requirement.locate(environment) is None]
