"""A small Nova cell that changes, and announces it as Nova does: `notify.py CELL.json`, in the environment of Nova.

The file says `database` and `api` (URLs of empty databases), `folder`, `amqp_url`, and `exchange`, `topic` and
`legacy_topic`, whose names nobody else uses. Nova's own objects write the databases; Nova's own notification code
builds the payloads, and the notifier of oslo.messaging sends them. It says `ready` when the cell has its first servers.
Then it does one round for each line it reads, which is the seed of the round, and answers `done UUID`: the server whose
change was announced last. Seed 0 announces all in the order in which it happens, others in any order and repeatedly.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import sys
from collections.abc import Callable
from functools import partial

import make_world
import nova.conf
import sqlalchemy
from nova import config, context, objects, rpc
from nova.compute import utils
from nova.db import migration
from nova.notifications import base
from nova.notifications.objects import instance as payloads
from nova.objects import fields

CONF = nova.conf.CONF
CONTEXT = make_world.CONTEXT
COMPUTE, API = fields.NotificationSource.COMPUTE, fields.NotificationSource.API


def begin(cell: dict[str, str]) -> None:
    file = pathlib.Path(cell["folder"]) / "nova.conf"
    file.write_text(
        f"[DEFAULT]\ntransport_url = {cell['amqp_url']}\ncontrol_exchange = {cell['exchange']}\n"
        f"state_path = {cell['folder']}\nhost = api-1\n"
        f"[database]\nconnection = {cell['database']}\n"
        f"[api_database]\nconnection = {cell['api']}\n"
        "[notifications]\nnotification_format = both\nnotify_on_state_change = vm_and_task_state\n"
        f"versioned_notifications_topics = {cell['topic']}\n"
        f"[oslo_messaging_notifications]\ndriver = messagingv2\ntopics = {cell['legacy_topic']}\n"
        "[glance]\nendpoint_override = http://nowhere.invalid\n"
    )
    # As nova.config does it, which has a name of its own for the exchange.
    rpc.set_defaults(control_exchange=cell["exchange"])
    config.rpc.set_defaults = lambda *_, **__: None
    config.parse_args(["nova", "--config-file", str(file)])
    objects.register_all()
    migration.db_sync(database="api")
    mapping = objects.CellMapping(
        CONTEXT,
        uuid=make_world.identifier("cell1"),
        name="cell1",
        database_connection=cell["database"],
        transport_url="none:///",
        disabled=False,
    )
    mapping.create()
    with context.target_cell(CONTEXT, mapping) as targeted:
        migration.db_sync(context=targeted)
    rpc.init(CONF)


def raised(text: str) -> Exception:
    """As somebody has caught it, with its traceback."""
    caught = RuntimeError(text)
    with contextlib.suppress(RuntimeError):
        raise caught
    return caught


class Servers:
    """The servers of the cell, by name. What happens to them is announced when `announce` is called."""

    def __init__(self, cell: dict[str, str]) -> None:
        flavors = {
            "small": make_world.flavor("m1.small", "1"),
            "large": make_world.flavor("m1.large", "2", memory_mb=8192, vcpus=8),
        }
        self.flavors = flavors
        self._cell = make_world.Cell("cell1", sqlalchemy.create_engine(cell["database"]), flavors)
        self._targeted = context.target_cell(CONTEXT, self._cell.mapping)
        self.context = self._targeted.__enter__()
        self.waiting: list[Callable[[], None]] = []

    def add(self, name: str, **given: object) -> objects.Instance:
        return self.get(self._cell.add(name, **given))

    def get(self, uuid: str) -> objects.Instance:
        found = objects.Instance.get_by_uuid(
            self.context, uuid, expected_attrs=["info_cache", "metadata", "system_metadata", "flavor", "tags"]
        )
        found.obj_reset_changes()
        return found

    def acts(
        self, seen: objects.Instance, action: str, phase: str | None = None, host: str = "node-a", **more: object
    ) -> None:
        """What the process on `host` will say of what it has seen, whatever happens to it later."""
        kept = seen.obj_clone()
        self.waiting.append(
            lambda: utils.notify_about_instance_action(self.context, kept, host, action, phase=phase, **more)
        )

    def creates(self, seen: objects.Instance, phase: str, exception: Exception | None = None) -> None:
        kept = seen.obj_clone()
        self.waiting.append(
            lambda: utils.notify_about_instance_create(
                self.context, kept, "node-a", phase=phase, exception=exception, bdms=objects.BlockDeviceMappingList()
            )
        )

    def updates(self, seen: objects.Instance) -> None:
        kept = seen.obj_clone()
        self.waiting.append(lambda: base.send_instance_update_notification(self.context, kept, service="nova-api"))

    def says(self, send: Callable[[], None]) -> None:
        self.waiting.append(send)

    def announce(self, seed: int) -> None:
        chosen = random.Random(seed)  # a seed repeats it
        waiting, self.waiting = self.waiting, []
        if seed:
            waiting += chosen.sample(waiting, len(waiting) // 2)
            chosen.shuffle(waiting)
        for send in waiting:
            send()


def fill(servers: Servers) -> dict[str, str]:
    running = {"host": "node-a", "node": "node-a", "compute_id": 1, "launched_on": "node-a"}
    names = (
        "moving",
        "resizing",
        "deleted",
        "purged",
        "tagged",
        "locked",
        "broken",
        "renamed",
        "soft",
        "future",
        "marker",
    )
    extra = {"user_data": "aGVsbG8=", "config_drive": "True", "key_name": "mine"}
    return {name: servers.add(name, minutes=number, **running, **extra).uuid for number, name in enumerate(names)}


def play(servers: Servers, known: dict[str, str], number: int) -> None:
    """One round of what happens in the cell; each part is one of the contract's difficulties."""
    _migrate(servers, known["moving"], number)
    _resize(servers, known["resizing"])
    _delete(servers, number)
    _build(servers, number)
    _tag(servers, known["tagged"], number)
    _lock(servers, known["locked"])
    _break(servers, known["broken"], number)
    _rename(servers, known["renamed"], number)
    _soft_delete(servers, known["soft"], number)
    _speak_in_versions_to_come(servers, known["future"], number)
    _speak_of_other_things(servers)


def _migrate(servers: Servers, uuid: str, number: int) -> None:
    """The source says last, and wrongly, where the server is."""
    server = servers.get(uuid)
    server.task_state = "migrating"
    server.save()
    left = server.obj_clone()
    servers.acts(server, "live_migration_pre", "end", "node-b")
    server.host = server.node = f"node-{number}"
    server.compute_id, server.task_state = 10 + number, None
    server.save()
    servers.acts(server, "live_migration_post_dest", "end", server.host)
    servers.acts(left, "live_migration_post", "end", left.host)


def _resize(servers: Servers, uuid: str) -> None:
    server = servers.get(uuid)
    left = server.obj_clone()
    size = servers.flavors["large" if server.flavor.name == "m1.small" else "small"]
    server.flavor = size
    server.instance_type_id, server.memory_mb, server.vcpus = size.id, size.memory_mb, size.vcpus
    server.vm_state = "resized"
    server.save()
    servers.acts(server, "resize_finish", "start", "node-b")
    servers.acts(left, "resize", "end", "node-a")


def _delete(servers: Servers, number: int) -> None:
    """Something else that was going on ends after the server has."""
    server = servers.add(f"short-lived-{number}", host="node-a", node="node-a", compute_id=1)
    servers.creates(server, "end")
    seen = server.obj_clone()
    server.vm_state = "deleted"
    server.save()
    server.destroy()
    servers.acts(server, "delete", "end")
    servers.acts(seen, "reboot", "end")
    servers.updates(seen)


def _build(servers: Servers, number: int) -> None:
    """The first host fails, the second one does not; and a server that is never built."""
    server = servers.add(f"built-{number}", vm_state="building", task_state="spawning", host="node-a")
    servers.creates(server, "start")
    servers.creates(server, "error", raised("no room"))
    server.host = server.node = server.launched_on = "node-b"
    server.compute_id = 2
    server.vm_state, server.task_state = "active", None
    server.save()
    servers.creates(server, "end")
    failed = servers.add(f"not-built-{number}", vm_state="building")
    failed.vm_state = "error"
    failed.save()
    objects.InstanceFault(
        servers.context, instance_uuid=failed.uuid, code=500, message="No valid host.", details="why", host=None
    ).create()
    request = objects.RequestSpec.get_by_instance_uuid(CONTEXT, failed.uuid)
    servers.says(
        lambda: utils.notify_about_compute_task_error(
            servers.context, "build_instances", failed.uuid, request, "error", raised("no host")
        )
    )


def _tag(servers: Servers, uuid: str, number: int) -> None:
    """The row keeps its time."""
    server = servers.get(uuid)
    server.tags = objects.TagList.create(servers.context, uuid, ["blue", f"round-{number}"])
    servers.updates(server)


def _lock(servers: Servers, uuid: str) -> None:
    """Who has locked it is in no notification."""
    server = servers.get(uuid)
    server.locked, server.locked_by = not server.locked, None if server.locked else "admin"
    server.save()
    servers.acts(server, "lock" if server.locked else "unlock", source=API)


def _break(servers: Servers, uuid: str, number: int) -> None:
    """The fault that users are shown is in no notification."""
    server = servers.get(uuid)
    server.vm_state = "error"
    server.save()
    objects.InstanceFault(
        servers.context, instance_uuid=uuid, code=500, message=f"It broke {number}", details="how", host="node-a"
    ).create()
    servers.acts(server, "reboot", "error", exception=raised("it broke"))


def _rename(servers: Servers, uuid: str, number: int) -> None:
    """Nova sends this one itself, when the row is saved: at once, and once. The addresses are in no notification."""
    server = servers.get(uuid)
    server.display_name, server.access_ip_v4 = f"renamed-{number}", f"198.51.100.{number + 1}"
    server.save()


def _soft_delete(servers: Servers, uuid: str, number: int) -> None:
    server = servers.get(uuid)
    server.vm_state = "soft-delete" if number % 2 == 0 else "active"
    server.save()
    servers.acts(server, "soft_delete" if number % 2 == 0 else "restore", "end")


def _speak_in_versions_to_come(servers: Servers, uuid: str, number: int) -> None:
    server = servers.get(uuid)
    server.display_name = f"future-{number}"
    server.save()
    for version in ("1.99", "7.0"):
        servers.says(partial(_send_as, servers, server.obj_clone(), version))


def _send_as(servers: Servers, seen: objects.Instance, version: str) -> None:
    """`version` of the payload, which has a field more."""
    payload = payloads.InstanceActionPayload
    known = payload.VERSION, payload.fields
    payload.VERSION, payload.fields = version, {**payload.fields, "rack": fields.StringField()}
    # As an object that was given the field has it.
    payload.rack = payload._obj_rack = "r7"
    try:
        utils.notify_about_instance_action(servers.context, seen, "node-a", "power_on", phase="end")
    finally:
        payload.VERSION, payload.fields = known
        del payload.rack, payload._obj_rack


def _speak_of_other_things(servers: Servers) -> None:
    key = objects.KeyPair(servers.context, name="mine", user_id="u", fingerprint="f", public_key="k", type="ssh")
    servers.says(lambda: utils.notify_about_keypair_action(servers.context, key, "create", "end"))


def mark(servers: Servers, known: dict[str, str], name: str) -> None:
    """A change that Nova announces by itself, at once."""
    marker = servers.get(known["marker"])
    marker.display_name = name
    marker.save()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    cell = json.loads(pathlib.Path(sys.argv[1]).read_text())
    begin(cell)
    servers = Servers(cell)
    known = fill(servers)
    # Nova makes the exchange when it sends something for the first time.
    mark(servers, known, "ready")
    say("ready")
    for number, line in enumerate(sys.stdin):
        play(servers, known, number)
        servers.announce(int(line))
        mark(servers, known, f"marker-{number}")
        say(f"done {known['marker']}")


main()
