"""Every action of an instance: when it is allowed, and its steps (contracts/nova-rest, 2.2 and 2.3).

This is the only list of actions. fleetlight.manager.operations.actions.accepting accepts them, and
fleetlight.manager.operations.jobs.worker carries their steps out.
"""

from collections.abc import Collection, Mapping

from fleetlight.manager.operations.actions.building import (
    ANY_TASK,
    IDLE,
    Action,
    announcing,
    calling,
    end,
    exists,
    on_destination,
    progress,
    scheduling,
    start,
    start_and_end,
    work,
)
from fleetlight.manager.operations.actions.effects import (
    choose_host,
    confirm_what_waits,
    give_back_all,
    give_back_others,
    give_up_addresses,
    migration_is,
    queue_for_delete,
    take_selections,
)
from fleetlight.manager.operations.actions.host_parameters import (
    destination_host,
    host_call,
    host_left_behind,
    rebuilt_guest,
    with_copies,
)
from fleetlight.manager.operations.actions.move_actions import MOVES
from fleetlight.manager.operations.actions.steps import PublisherService
from fleetlight.manager.operations.actions.values import (
    as_before,
    deleted,
    is_on_a_host,
    is_on_no_host,
    launched,
    networked,
    placed,
    rebuilt,
    unplaced,
    was_offloaded,
    was_only_shelved,
    was_resized,
    was_stopped,
)
from fleetlight.manager.operations.jobs.vocabulary import only_if
from fleetlight.notifications.event_types import INSTANCE_DELETE_END, INSTANCE_UPDATE
from fleetlight.resources.power_states import PAUSED, RUNNING, SHUT_DOWN

_HARD_REBOOT_TASKS = (
    None,
    "rebooting",
    "reboot_pending",
    "reboot_started",
    "rebooting_hard",
    "resuming",
    "unpausing",
    "pausing",
    "suspending",
)


def _reboot(name: str, suffix: str, vm_states: Collection[str], task_states: Collection[str | None]) -> Action:
    steps = work(
        "compute_reboot_instance",
        start("reboot", task_state=f"reboot_pending{suffix}"),
        progress(task_state=f"reboot_started{suffix}"),
        calling("reboot", end("reboot", vm_state="active", power_state=RUNNING)),
    )
    return Action(
        name,
        "reboot",
        "reboot",
        steps,
        vm_states,
        task_states,
        task=f"rebooting{suffix}",
        failure_event="instance.reboot.error",
    )


_CONFIRM_FIRST = only_if(
    was_resized,
    *work(
        "compute_confirm_resize",
        start("resize_confirm", confirm_what_waits),
        calling(
            "delete",
            announcing(
                "instance.resize_confirm.end",
                {"vm_state": "active"},
                effects=(give_back_others, migration_is("confirmed")),
            ),
            host=host_left_behind,
        ),
    ),
)
_DELETE = (
    *_CONFIRM_FIRST,
    *work(
        "compute_terminate_instance",
        *only_if(
            is_on_a_host,
            start("delete"),
            start("shutdown"),
            calling("delete", announcing("instance.shutdown.end"), with_copies),
            announcing(INSTANCE_DELETE_END, deleted, effects=(give_back_all, give_up_addresses)),
        ),
        *only_if(
            is_on_no_host,
            start("delete", source=PublisherService.API),
            announcing(INSTANCE_DELETE_END, deleted, PublisherService.API, (give_back_all, give_up_addresses)),
        ),
    ),
)
_BUILD = work(
    "compute__do_build_and_run_instance",
    *on_destination(
        start("create", source=PublisherService.DESTINATION, task_state=None),
        announcing(INSTANCE_UPDATE, placed("networking")),
        announcing(INSTANCE_UPDATE, networked),
        progress(task_state="spawning"),
        calling("create", announcing("instance.create.end", launched)),
    ),
    source=PublisherService.DESTINATION,
)


def _delete(name: str) -> Action:
    return Action(
        name,
        word="delete",
        record="delete",
        steps=_DELETE,
        task_states=ANY_TASK,
        needs_launch=False,
        task="deleting",
        replaces_others=True,
    )


_ALL = (
    Action(
        "create",
        word="create",
        record="create",
        steps=(*scheduling(take_selections), *_BUILD),
        failure_event="compute_task.build_instances.error",
        rescheduling=_BUILD,
        reschedule_event="instance.create.error",
        rescheduled=unplaced("scheduling"),
        undo=host_call("undo_create", host=destination_host),
    ),
    _delete("delete"),
    _delete("forceDelete"),
    Action(
        "softDelete",
        word="delete",
        record="delete",
        steps=(
            *_CONFIRM_FIRST,
            *work(
                "compute_soft_delete_instance",
                start("soft_delete"),
                calling("stop", end("soft_delete", queue_for_delete(queued=True), vm_state="soft-delete")),
            ),
        ),
        task_states=ANY_TASK,
        needs_launch=False,
        task="soft-deleting",
        replaces_others=True,
    ),
    start_and_end(
        "os-start",
        "power_on",
        ("stopped",),
        "powering-on",
        {"vm_state": "active", "power_state": RUNNING},
        word="start",
        needs_host=True,
    ),
    start_and_end(
        "os-stop",
        "power_off",
        ("active", "error"),
        "powering-off",
        {"vm_state": "stopped", "power_state": SHUT_DOWN},
        word="stop",
        needs_host=True,
    ),
    _reboot("reboot SOFT", "", ("active",), IDLE),
    _reboot("reboot HARD", "_hard", ("active", "stopped", "paused", "suspended", "error"), _HARD_REBOOT_TASKS),
    start_and_end("pause", "pause", ("active",), "pausing", {"vm_state": "paused", "power_state": PAUSED}),
    start_and_end("unpause", "unpause", ("paused",), "unpausing", {"vm_state": "active", "power_state": RUNNING}),
    # A suspended guest does not run: its hypervisor reports it as shut down.
    start_and_end("suspend", "suspend", ("active",), "suspending", {"vm_state": "suspended", "power_state": SHUT_DOWN}),
    start_and_end("resume", "resume", ("suspended",), "resuming", {"vm_state": "active", "power_state": RUNNING}),
    Action(
        "rescue",
        word="rescue",
        record="rescue",
        steps=work(
            "compute_rescue_instance",
            start("rescue"),
            exists(),
            calling("rescue", end("rescue", vm_state="rescued", power_state=RUNNING)),
        ),
        vm_states=("active", "stopped", "error"),
        task="rescuing",
    ),
    start_and_end("unrescue", "unrescue", ("rescued",), "unrescuing", {"vm_state": "active", "power_state": RUNNING}),
    Action(
        "rebuild",
        word="rebuild",
        record="rebuild",
        steps=(
            *scheduling(),
            announcing("instance.rebuild_scheduled", source=PublisherService.CONDUCTOR),
            *work(
                "compute_rebuild_instance",
                exists(),
                start("rebuild"),
                progress(task_state="rebuild_block_device_mapping"),
                progress(task_state="rebuild_spawning"),
                *only_if(
                    was_stopped,
                    progress(vm_state="active", task_state="powering-off", power_state=RUNNING),
                    start("power_off"),
                    end("power_off", vm_state="stopped", power_state=SHUT_DOWN),
                ),
                calling("rebuild", announcing("instance.rebuild.end", rebuilt), rebuilt_guest),
            ),
        ),
        vm_states=("active", "stopped", "error"),
        task="rebuilding",
        failure_event="instance.rebuild.error",
    ),
    *MOVES,
    Action(
        "shelve",
        word="shelve",
        record="shelve",
        steps=(
            *work(
                "compute_shelve_instance",
                exists(),
                start("shelve"),
                calling("shelve", progress(task_state="shelving_image_uploading", power_state=SHUT_DOWN)),
                end("shelve", vm_state="shelved", task_state="shelving_offloading"),
            ),
            *work(
                "compute_shelve_offload_instance",
                start("shelve_offload"),
                calling(
                    "delete",
                    end("shelve_offload", give_back_all, vm_state="shelved_offloaded", host=None, node=None),
                    with_copies,
                ),
            ),
        ),
        vm_states=("active", "stopped", "paused", "suspended"),
        task="shelving",
    ),
    Action(
        "shelveOffload",
        word="shelveOffload",
        record="shelveOffload",
        steps=work(
            "compute_shelve_offload_instance",
            start("shelve_offload"),
            calling(
                "delete",
                end(
                    "shelve_offload",
                    give_back_all,
                    vm_state="shelved_offloaded",
                    power_state=SHUT_DOWN,
                    host=None,
                    node=None,
                ),
                with_copies,
            ),
        ),
        vm_states=("shelved",),
        task="shelving_offloading",
    ),
    Action(
        "unshelve",
        word="unshelve",
        record="unshelve",
        steps=(
            *only_if(
                was_offloaded,
                *scheduling(choose_host),
                *work(
                    "compute_unshelve_instance",
                    start("unshelve", source=PublisherService.DESTINATION),
                    announcing(INSTANCE_UPDATE, placed("spawning")),
                    calling("create", announcing("instance.unshelve.end", launched)),
                    source=PublisherService.DESTINATION,
                ),
            ),
            *only_if(
                was_only_shelved,
                *work(
                    "compute_unshelve_instance",
                    start("power_on", task_state="powering-on"),
                    calling("start", end("power_on", vm_state="active", power_state=RUNNING)),
                ),
            ),
        ),
        vm_states=("shelved", "shelved_offloaded"),
        task="unshelving",
        failure=as_before,
        undo=host_call("undo_create", host=destination_host),
    ),
    Action(
        "changePassword",
        word="changePassword",
        record="changePassword",
        steps=work("compute_set_admin_password", calling("set_password", progress(task_state=None))),
        vm_states=("active",),
        task="updating_password",
        failure=as_before,
    ),
    Action(
        "trigger_crash_dump",
        word="trigger_crash_dump",
        record="trigger_crash_dump",
        steps=work(
            "compute_trigger_crash_dump",
            start("trigger_crash_dump"),
            calling("crash", announcing("instance.trigger_crash_dump.end")),
        ),
        failure=as_before,
        vm_states=("active", "paused", "rescued", "resized", "error"),
        needs_host=True,
    ),
    Action(
        "restore",
        word="restore",
        record="restore",
        steps=work(
            "compute_restore_instance",
            start("restore"),
            calling(
                "start",
                end("restore", queue_for_delete(queued=False), vm_state="active", power_state=RUNNING, deleted_at=None),
            ),
        ),
        vm_states=("soft-delete",),
        task="restoring",
    ),
)

ACTIONS: Mapping[str, Action] = {action.name: action for action in _ALL}
"""The actions by name, which is the key in the request's body, if it has one."""
