"""The requests that Nova and we are asked, over the world of make_world.py.

Where the answers differ by intent, docs/reference/compatibility.md says why, and the test leaves the request away or
says what differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_DNS, uuid5

DEMO = "1" * 32
OTHER = "2" * 32
USER = "3" * 32


def identifier(name: str) -> str:
    """The uuid of what make_world.py calls `name`."""
    return str(uuid5(NAMESPACE_DNS, name))


@dataclass(frozen=True)
class Asked:
    """One request of a list or of one server. path: behind `/v2.1`."""

    path: str
    is_admin: bool = True
    project: str = DEMO
    version: str = "2.100"

    def __str__(self) -> str:
        return f"{self.path} {'admin' if self.is_admin else 'member'} of {self.project[0]} {self.version}"


_EVERYTHING = "/servers/detail?all_tenants=1"
_NAMES = "/servers?all_tenants=1"
_FILTERS = (
    "name=^[Ww]eb",
    "name=web-1",
    "name=WEB",
    "name=%C3%A9",
    "name=%E5%90%8D",
    "name=web.1",
    "name=web-10%20$",
    "name=lots|many",
    "name=[0-9]{2}$",
    "status=ACTIVE",
    "status=active&status=error",
    "status=reboot",
    "status=REBUILD",
    "status=resize",
    "status=deleted",
    "status=soft_deleted",
    "status=shelved_offloaded",
    "host=compute1",
    "host=COMPUTE1",
    "node=node",
    "flavor=large-42",
    "flavor=1",
    "flavor=unknown",
    f"image={identifier('image')}",
    "image=",
    f"project_id={OTHER}",
    f"user_id={USER}",
    f"user_id={USER.upper()}x",
    "vm_state=paused",
    "task_state=rebooting",
    "power_state=4",
    "locked=true",
    "locked=false",
    "locked_by=admin",
    "config_drive=True",
    "key_name=mine",
    "hostname=web",
    "reservation_id=r-0",
    "availability_zone=west",
    "root_device_name=vda",
    "launch_index=0",
    "progress=0",
    "display_description=x",
    "description=nobody",
    "tags=blue",
    "tags=Blue,red",
    "tags-any=red,gr%C3%BCn",
    "not-tags=blue",
    "not-tags=blue,red",
    "not-tags-any=blue,Blue",
    "deleted=true",
    "deleted=true&soft_deleted=",
    "deleted=false",
    "deleted=false&soft_deleted=true",
    "changes-since=2026-11-01T12:15:30Z",
    "changes-before=2026-11-01T12:16:00Z",
    "changes-since=2026-11-01T12:02:00Z&changes-before=2026-11-01T12:05:30Z",
    "changes-since=2026-11-01T12:20:00Z&deleted=true",
    f"uuid={identifier('broken')}",
    f"uuid={identifier('deleted-1')}",
    "launched_at=2026-11-01%2012:03",
    "terminated_at=2026",
)
_ORDERS = (
    "sort_key=created_at&sort_dir=asc",
    "sort_key=uuid&sort_dir=desc",
    "sort_key=project_id&sort_dir=desc",
    "sort_key=hostname&sort_dir=asc",
    "sort_key=power_state&sort_dir=desc&sort_key=created_at&sort_dir=asc",
    "sort_key=instance_type_id&sort_dir=asc&sort_key=hostname&sort_dir=desc",
    "sort_key=locked&sort_dir=desc",
    "sort_key=image_ref&sort_dir=asc",
    "sort_key=user_id&sort_dir=asc&sort_key=uuid&sort_dir=asc",
)
_IGNORED_ORDERS = (
    "sort_key=id&sort_dir=asc",
    "sort_key=vcpus&sort_key=root_gb&sort_dir=asc",
    *(f"sort_key=id&limit=9&marker={identifier(name)}" for name in ("tie-a", "tie-b", "many-05")),
)
_PAGES = (
    "limit=7&host=compute1",
    "limit=0",
    *(
        f"limit=9&marker={identifier(name)}"
        for name in ("tie-a", "tie-b", "many-05", "lots-14", "soft-deleted", "deleted-1")
    ),
    f"limit=5&marker={identifier('web-1')}",
    f"limit=5&host=compute1&sort_key=hostname&sort_dir=asc&marker={identifier('tie-c')}",
    f"limit=50&sort_key=created_at&sort_dir=asc&marker={identifier('many-03')}",
    f"name=lots&limit=4&marker={identifier('lots-07')}",
    f"limit=2&marker={identifier('archived')}",
    f"limit=2&marker={identifier('nobody')}",
    f"marker={identifier('nobody')}&flavor=nobody",
    f"marker={identifier('nobody')}&flavor=1",
)
REQUESTS = (
    Asked(_EVERYTHING),
    Asked("/servers?all_tenants=1"),
    Asked("/servers/detail", is_admin=False),
    Asked("/servers/detail", is_admin=False, project=OTHER),
    *(Asked("/servers/detail", is_admin=False, version=version) for version in ("2.1", "2.46", "2.72")),
    Asked(f"{_EVERYTHING}&deleted=true"),
    *(Asked(_EVERYTHING, version=version) for version in ("2.1", "2.3", "2.47", "2.90")),
    *(Asked(f"{_NAMES}&{words}") for words in (*_FILTERS, *_ORDERS, *_PAGES)),
    *(Asked(f"{_NAMES}&{words}", version="2.74") for words in _IGNORED_ORDERS),
    Asked("/servers?name=web&limit=2", is_admin=False),
    Asked("/servers?status=deleted", is_admin=False),
    *(
        Asked(f"/servers/{identifier(name)}")
        for name in (
            "web-1",
            "broken",
            "no-host-found",
            "deleted-1",
            "soft-deleted",
            "waiting",
            "archived",
            "not-mapped",
        )
    ),
    Asked(f"/servers/{identifier('web.5')}", is_admin=False),
)

USAGE = Asked("/os-simple-tenant-usage?start=2026-11-01T12:00:00&end=2026-11-01T13:30:00")

# On what Nova leaves to its database, the databases differ, and we do not.
_LEFT_TO_POSTGRESQL = (
    # A pattern fails on what is no text, which makes the cells count as down.
    *("power_state=4", "locked_by=admin", "launch_index=0", "progress=0", "launched_at=", "terminated_at="),
    # Text orders by locale.
    "sort_key=hostname",
    "sort_key=instance_type_id",
)
_LEFT_TO_MARIADB = (
    # Case, accents and spaces at the end do not count, and a bar is no alternative.
    *("name=", "host=", "node=", "hostname=", "key_name=", "tags=", "tags-any=", "user_id="),
    *("sort_key=hostname", "sort_key=instance_type_id"),
)


def requests_for(server: str) -> Sequence[Asked]:
    """Those of lists and servers that Nova answers alike on each kind of server."""
    left = {"sqlite": (), "postgresql": _LEFT_TO_POSTGRESQL, "mariadb": _LEFT_TO_MARIADB}[server]
    return [asked for asked in REQUESTS if not any(words in asked.path for words in left)]
