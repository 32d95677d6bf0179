"""Makes the databases of a small Nova deployment with Nova's own migrations, and fills them through its own objects.

Runs in the environment of tests/nova/requirements.lock, never in ours: `make_world.py WORLD.json`. The file says
`api`, `cell0`, `cell1` and `cell2` (URLs of empty databases), `folder`, and `templated`: how cell2 is written
down, with its URL as [database]connection.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
import uuid

import nova.conf
import sqlalchemy
from nova import config, context, objects, rpc
from nova.db import migration
from nova.db.api import api as api_database
from nova.db.main import api as main_database
from nova.network import model as network
from nova.objects import fields

PROJECTS = {"demo": "11111111111111111111111111111111", "other": "22222222222222222222222222222222"}
USER = "33333333333333333333333333333333"
START = datetime.datetime(2026, 11, 1, 12, 0, 0)  # noqa: DTZ001  # as Nova has its times
NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
# What Nova's API sets to nothing as well.
UNSET = (
    *("access_ip_v4", "access_ip_v6", "user_data", "kernel_id", "ramdisk_id", "root_device_name", "launched_at"),
    *("terminated_at", "host", "node", "launched_on", "deleted_at", "os_type", "architecture", "vm_mode"),
)
CONTEXT = context.get_admin_context()


def identifier(name: str) -> str:
    return str(uuid.uuid5(NAMESPACE, name))


def begin(world: dict[str, str]) -> None:
    """Reads the configuration that this process works with; the databases are opened when they are needed."""
    file = pathlib.Path(world["folder"]) / "nova.conf"
    file.write_text(
        f"[DEFAULT]\ntransport_url = {world.get('bus', 'fake:///')}\nstate_path = {world['folder']}\n"
        "[api]\nresponse_validation = ignore\n"
        f"{world.get('announced', '')}"
        f"[database]\nconnection = {world['cell2']}\nsqlite_synchronous = false\n"
        f"[api_database]\nconnection = {world['api']}\nsqlite_synchronous = false\n"
    )
    config.parse_args(["nova", "--config-file", str(file)])
    objects.register_all()
    if "bus" in world:
        rpc.init(nova.conf.CONF)


def make_schemas(world: dict[str, str]) -> None:
    migration.db_sync(database="api")
    mappings = {
        "cell0": (objects.CellMapping.CELL0_UUID, world["cell0"], False),
        "cell1": (identifier("cell1"), world["cell1"], False),
        "cell2": (identifier("cell2"), world["templated"], True),
    }
    for name, (cell, url, disabled) in mappings.items():
        mapping = objects.CellMapping(
            CONTEXT, uuid=cell, name=name, database_connection=url, transport_url="none:///", disabled=disabled
        )
        mapping.create()
        with context.target_cell(CONTEXT, mapping) as targeted:
            migration.db_sync(context=targeted)


def flavor(name: str, flavorid: str, **sizes: int) -> objects.Flavor:
    made = objects.Flavor(
        CONTEXT,
        name=name,
        flavorid=flavorid,
        memory_mb=sizes.get("memory_mb", 512),
        vcpus=sizes.get("vcpus", 1),
        root_gb=sizes.get("root_gb", 1),
        ephemeral_gb=0,
        swap=0,
        rxtx_factor=1.0,
        vcpu_weight=None,
        disabled=False,
        is_public=True,
        extra_specs={"hw:cpu_policy": "shared"},
    )
    made.create()
    return made


def network_info(*addresses: tuple[str, str, str | None]) -> network.NetworkInfo:
    ports = []
    for number, (label, address, floating) in enumerate(addresses):
        fixed = network.FixedIP(address=address)
        if floating:
            fixed.add_floating_ip(network.IP(address=floating, type="floating"))
        subnet = network.Subnet(cidr="10.0.0.0/8", ips=[fixed], dns=[], routes=[], gateway=None)
        ports.append(
            network.VIF(
                id=identifier(f"port-{address}"),
                address=f"fa:16:3e:00:00:{number:02x}",
                network=network.Network(id=identifier(label), bridge="br-int", label=label, subnets=[subnet]),
                type="ovs",
                devname=f"tap{number}",
                active=True,
            )
        )
    return network.NetworkInfo(ports)


class Cell:
    """One cell that gets instances. Values that objects do not take as given are set by SQL afterwards."""

    def __init__(self, name: str, engine: sqlalchemy.Engine, flavors: dict[str, objects.Flavor]) -> None:
        self.mapping = next(each for each in objects.CellMappingList.get_all(CONTEXT) if each.name == name)
        self._engine = engine
        self._flavors = flavors

    def add(self, name: str, *, minutes: int = 0, is_mapped: bool = True, **given: object) -> str:
        """One instance, whose uuid is made of `name`; `minutes` after START. What is in `given` and no attribute of
        an instance is of what hangs off it, or `sql`: columns and their values.
        """
        instance_uuid = given.pop("uuid", identifier(name))
        row = {"created_at": START + datetime.timedelta(minutes=minutes), **given.pop("sql", {})}
        row.setdefault("updated_at", row["created_at"] + datetime.timedelta(seconds=30))
        tags, faults = given.pop("tags", ()), given.pop("faults", ())
        volumes, deleted = given.pop("volumes", ()), given.pop("deleted", False)
        ports = given.pop("ports", network.NetworkInfo([]))
        size, spec = self._flavors[given.pop("flavor", "small")], given.pop("spec", {})
        values = {
            "project_id": PROJECTS["demo"],
            "user_id": USER,
            "display_name": name,
            "hostname": name,
            "vm_state": "active",
            "task_state": None,
            "power_state": 1,
            "image_ref": identifier("image"),
            "metadata": {},
            "system_metadata": {},
            "availability_zone": "nova",
            "reservation_id": "r-00000001",
            "launch_index": 0,
            "config_drive": "",
            "key_name": None,
            "locked": False,
            "auto_disk_config": True,
            "progress": 0,
            **given,
        }
        with context.target_cell(CONTEXT, self.mapping) as targeted:
            instance = objects.Instance(
                targeted,
                uuid=instance_uuid,
                flavor=size,
                old_flavor=None,
                new_flavor=None,
                instance_type_id=size.id,
                memory_mb=size.memory_mb,
                vcpus=size.vcpus,
                root_gb=size.root_gb,
                ephemeral_gb=0,
                **values,
            )
            instance.create()
            cache = objects.InstanceInfoCache.get_by_instance_uuid(targeted, instance_uuid)
            cache.network_info = ports
            cache.save()
            if tags:
                objects.TagList.create(targeted, instance_uuid, list(tags))
            for code, message, details in faults:
                objects.InstanceFault(
                    targeted, instance_uuid=instance_uuid, code=code, message=message, details=details, host=None
                ).create()
            for number, (volume, goes) in enumerate(volumes):
                objects.BlockDeviceMapping(
                    targeted,
                    instance_uuid=instance_uuid,
                    source_type="volume",
                    destination_type="volume",
                    device_name=f"/dev/vd{'abc'[number]}",
                    boot_index=number,
                    delete_on_termination=goes,
                    volume_id=identifier(volume),
                    no_device=False,
                ).create()
            if deleted:
                instance.terminated_at = row["updated_at"]
                instance.vm_state = "deleted"
                instance.save()
                instance.destroy()
                row.setdefault("deleted_at", row["updated_at"])
        self.set(instance_uuid, **row)
        if is_mapped:
            map_instance(instance_uuid, self.mapping, values["project_id"])
            if spec is not None:
                request_spec(instance_uuid, size, **spec)
        return instance_uuid

    def add_service(self, host: str, binary: str = "nova-compute", **values: object) -> None:
        with context.target_cell(CONTEXT, self.mapping) as targeted:
            objects.Service(targeted, host=host, binary=binary, topic="compute", report_count=1, **values).create()

    def set(self, instance_uuid: str, **row: object) -> None:
        self.execute(
            f"UPDATE instances SET {', '.join(f'{name} = :{name}' for name in row)} WHERE uuid = :uuid",  # noqa: S608
            uuid=instance_uuid,
            **row,
        )

    def execute(self, statement: str, **values: object) -> None:
        times = [
            sqlalchemy.bindparam(name, type_=sqlalchemy.DateTime)
            for name, value in values.items()
            if isinstance(value, datetime.datetime)
        ]
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement).bindparams(*times), values)


def map_instance(instance_uuid: str, cell: objects.CellMapping | None, project: str) -> None:
    objects.InstanceMapping(
        CONTEXT,
        instance_uuid=instance_uuid,
        cell_mapping=cell,
        project_id=project,
        user_id=USER,
        queued_for_delete=False,
    ).create()


def request_spec(instance_uuid: str, size: objects.Flavor, *, zone: str | None = None, hints: object = None) -> None:
    objects.RequestSpec(
        CONTEXT,
        instance_uuid=instance_uuid,
        project_id=PROJECTS["demo"],
        user_id=USER,
        flavor=size,
        image=None,
        numa_topology=None,
        pci_requests=None,
        num_instances=1,
        availability_zone=zone,
        scheduler_hints=hints or {},
        is_bfv=False,
        limits=objects.SchedulerLimits(),
        retry=None,
        instance_group=None,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        requested_destination=None,
        security_groups=objects.SecurityGroupList(),
    ).create()


def build_request(name: str, size: objects.Flavor, project: str = "demo") -> str:
    """A server that no cell has: accepted, and not scheduled."""
    instance_uuid = identifier(name)
    instance = objects.Instance(
        CONTEXT,
        uuid=instance_uuid,
        project_id=PROJECTS[project],
        user_id=USER,
        display_name=name,
        display_description=None,
        hostname=name,
        vm_state="building",
        task_state="scheduling",
        power_state=0,
        image_ref=identifier("image"),
        flavor=size,
        old_flavor=None,
        new_flavor=None,
        instance_type_id=size.id,
        metadata={"of": "a build request"},
        system_metadata={"image_os_distro": "debian"},
        info_cache=objects.InstanceInfoCache(CONTEXT, instance_uuid=instance_uuid, network_info=network_info()),
        security_groups=objects.SecurityGroupList(objects=[]),
        tags=objects.TagList(objects=[]),
        key_name=None,
        config_drive="",
        auto_disk_config=True,
        launch_index=0,
        reservation_id="r-00000002",
        availability_zone=None,
        locked=False,
        locked_by=None,
        progress=0,
        trusted_certs=None,
        hidden=False,
        deleted=False,
        cleaned=False,
        **dict.fromkeys(UNSET),
        numa_topology=None,
        pci_requests=objects.InstancePCIRequests(requests=[], instance_uuid=instance_uuid),
    )
    devices = objects.BlockDeviceMappingList(
        objects=[
            objects.BlockDeviceMapping(
                CONTEXT,
                source_type=fields.BlockDeviceSourceType.VOLUME,
                destination_type=fields.BlockDeviceDestinationType.VOLUME,
                volume_id=identifier("volume of a build request"),
                delete_on_termination=True,
                boot_index=0,
            )
        ]
    )
    objects.BuildRequest(
        CONTEXT,
        instance=instance,
        instance_uuid=instance_uuid,
        project_id=PROJECTS[project],
        block_device_mappings=devices,
        tags=objects.TagList(objects=[objects.Tag(CONTEXT, tag="waiting", resource_id=instance_uuid)]),
    ).create()
    request_spec(instance_uuid, size, zone="east")
    return instance_uuid


def fill(world: dict[str, str]) -> None:
    flavors = {
        "small": flavor("m1.small", "1"),
        "large": flavor("m1.large", "large-42", memory_mb=8192, vcpus=8, root_gb=80),
    }
    engines = {name: sqlalchemy.create_engine(world[name]) for name in ("cell0", "cell1", "cell2")}
    cell0, cell1, cell2 = (Cell(name, engine, flavors) for name, engine in engines.items())
    _fill_cell0(cell0)
    _fill_cell1(cell1)
    _fill_cell2(cell2)
    # Between the two writes of the conductor, and before them.
    build_request("waiting", flavors["small"])
    map_instance(identifier("waiting"), None, PROJECTS["demo"])
    build_request("waiting-elsewhere", flavors["large"], "other")
    map_instance(identifier("waiting-elsewhere"), None, PROJECTS["other"])
    build_request("arrived", flavors["small"])
    cell1.add("arrived", minutes=200, spec=None)
    map_instance(identifier("in-no-cell"), None, PROJECTS["demo"])
    map_instance(identifier("archived"), cell1.mapping, PROJECTS["demo"])
    group = objects.InstanceGroup(CONTEXT, user_id=USER, project_id=PROJECTS["demo"], name="apart", policy="affinity")
    group.create()
    objects.InstanceGroup.add_members(CONTEXT, group.uuid, [identifier("web-1")])
    for engine in engines.values():
        engine.dispose()


def _fill_cell0(cell: Cell) -> None:
    cell.add(
        "no-host-found",
        minutes=30,
        vm_state="error",
        power_state=0,
        availability_zone=None,
        faults=[(500, "No valid host was found.", "first"), (500, "No valid host was found. Again.", "the traceback")],
    )
    cell.add("no-host-quietly", minutes=31, vm_state="error", power_state=0, project_id=PROJECTS["other"])


def _fill_cell1(cell: Cell) -> None:
    running = {"host": "compute1", "node": "node1", "compute_id": 1, "launched_on": "compute1"}
    launched = START + datetime.timedelta(minutes=3)
    cell.add_service("compute1", disabled=True, last_seen_up=START)
    cell.add_service("silent", last_seen_up=START)
    cell.add_service("without-service", binary="nova-conductor")
    cell.add(
        "web-1",
        minutes=1,
        **running,
        flavor="large",
        metadata={"role": "web", "Größe": "groß"},
        system_metadata={"image_os_distro": "debian", "image_hw_disk_bus": "virtio", "image_min_disk": "1"},
        tags=("Blue", "grün"),
        volumes=(("root", True), ("data", False)),
        ports=network_info(
            ("private", "10.0.0.4", "192.0.2.4"), ("public", "10.1.0.4", None), ("private", "fd00::4", None)
        ),
        launched_at=launched,
        key_name="mine",
        user_data="aGVsbG8=",
        spec={"zone": "east", "hints": {"group": ["one"]}},
        access_ip_v4="198.51.100.1",
        access_ip_v6="2001:db8::1",
        config_drive="True",
        root_device_name="/dev/vda",
    )
    cell.add("Web-1", minutes=2, **running, tags=("blue",), ports=network_info(("private", "10.0.0.5", None)))
    cell.add("wéb", minutes=3, **running, tags=("Blue", "red"), launched_at=launched)
    cell.add("web-10 ", minutes=4, **running)
    cell.add("web.5", minutes=4, **running, project_id=PROJECTS["other"], tags=("blue",), launched_at=launched)
    cell.add("名前", minutes=5, **running)
    cell.add("without-a-state", minutes=6, sql={"vm_state": None})
    cell.add("without-a-name", minutes=7, sql={"display_name": None})
    cell.add("never-updated", minutes=8, sql={"updated_at": None})
    cell.add("hidden-null", minutes=9, sql={"hidden": None})
    cell.add("locked", minutes=10, **running, locked=True, locked_by="admin", system_metadata={"locked_reason": "mine"})
    cell.add("rebooting", minutes=11, **running, task_state="rebooting")
    cell.add("rebuilding", minutes=12, **running, task_state="rebuilding", vm_state="stopped", power_state=4)
    cell.add("resizing", minutes=13, **running, task_state="resize_migrating", flavor="large")
    cell.add("resized", minutes=14, **running, vm_state="resized")
    cell.add("shelved", minutes=15, vm_state="shelved_offloaded", power_state=4)
    cell.add("on-a-silent-host", minutes=15, host="silent", node="silent", compute_id=2)
    cell.add("on-a-host-without-service", minutes=15, host="without-service", node="without-service", compute_id=3)
    cell.add("soft-deleted", minutes=16, **running, vm_state="soft-delete", sql={"deleted_at": START})
    cell.add("broken", minutes=17, **running, vm_state="error", faults=[(404, "gone", ""), (500, "It broke.", "why")])
    cell.add("from-a-volume", minutes=18, **running, image_ref="", volumes=(("boot", False),))
    cell.add("moving", minutes=19, **running)
    cell.add(
        "deleted-1",
        minutes=20,
        deleted=True,
        metadata={"left": "over"},
        system_metadata={"image_os_distro": "debian"},
        tags=("blue",),
        volumes=(("gone", True),),
        ports=network_info(("private", "10.0.0.6", None)),
        launched_at=launched,
        **running,
    )
    cell.add("tie-b", minutes=25)
    cell.add("not-mapped", minutes=26, is_mapped=False)
    cell.add("twice-extra", minutes=27, **running)
    # With the same flavor: Nova takes whichever row its database has last, and fails if that one has none.
    cell.execute(
        "INSERT INTO instance_extra (created_at, deleted, instance_uuid, flavor) "
        "SELECT created_at, id, instance_uuid, flavor FROM instance_extra WHERE instance_uuid = :uuid",
        uuid=identifier("twice-extra"),
    )
    for number in range(15):
        cell.add(f"many-{number:02}", minutes=60 + number // 2, project_id=PROJECTS["other"], **running)


def _fill_cell2(cell: Cell) -> None:
    running = {"host": "compute2", "node": "node2", "compute_id": 1}
    cell.add_service("compute2", forced_down=True, last_seen_up=START)
    cell.add("web-1 copy", minutes=1, **running, display_name="web-1", tags=("blue", "red"))
    cell.add("WEB-2", minutes=2, **running, ports=network_info(("private", "10.0.0.40", None)))
    cell.add("moving", minutes=19, is_mapped=False, hidden=True, **running)
    cell.add("tie-a", minutes=25)
    cell.add("tie-c", minutes=25, availability_zone="west")
    cell.add("paused", minutes=28, vm_state="paused", power_state=3, **running)
    cell.add("deleted-2", minutes=29, deleted=True, launched_at=START - datetime.timedelta(days=2), **running)
    for number in range(15):
        cell.add(f"lots-{number:02}", minutes=60 + number // 3, project_id=PROJECTS["other"], **running)


def main() -> None:
    world = json.loads(pathlib.Path(sys.argv[1]).read_text())
    begin(world)
    main_database.configure(nova.conf.CONF)
    api_database.configure(nova.conf.CONF)
    make_schemas(world)
    fill(world)


if __name__ == "__main__":
    main()
