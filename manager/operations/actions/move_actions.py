"""Actions that take an instance to another host: resize, migrate, evacuate (contracts/nova-rest, 2.5 and 2.6)."""

from fleetlight.manager.operations.actions.building import (
    ANY_TASK,
    Action,
    announcing,
    calling,
    end,
    exists,
    on_destination,
    progress,
    scheduling,
    start,
    work,
)
from fleetlight.manager.operations.actions.effects import (
    aim_back,
    choose_host,
    choose_host_and_alternates,
    give_back_origin,
    give_back_others,
    migration_is,
)
from fleetlight.manager.operations.actions.host_parameters import (
    back_from_target,
    destination_host,
    evacuated_guest,
    host_call,
    host_left_behind,
    moved_guest,
    origin_host,
    reverted_guest,
    to_target,
)
from fleetlight.manager.operations.actions.steps import PublisherService
from fleetlight.manager.operations.actions.values import (
    as_before,
    confirmed,
    evacuated,
    placed,
    resized_there,
    reverted,
)
from fleetlight.manager.operations.jobs.vocabulary import Step


def _cold_migration() -> tuple[Step, ...]:
    """Make the steps that schedule a move, which are two events of its instance action."""
    began, ended = scheduling(choose_host_and_alternates)
    return (
        *work("cold_migrate", began, source=PublisherService.CONDUCTOR),
        *work("conductor_migrate_server", ended, source=PublisherService.CONDUCTOR),
    )


def _move(name: str, migration_type: str) -> Action:
    """Make the action of a cold migration, with or without another flavor."""
    preparation = work(
        "compute_prep_resize",
        *on_destination(
            exists(PublisherService.DESTINATION),
            start("resize_prep", source=PublisherService.DESTINATION),
            calling(
                "prepare",
                announcing("instance.resize_prep.end", source=PublisherService.DESTINATION),
                moved_guest,
                host=destination_host,
            ),
        ),
        source=PublisherService.DESTINATION,
    )
    return Action(
        name,
        word=name,
        record=name,
        steps=(
            *_cold_migration(),
            *preparation,
            *work(
                "compute_resize_instance",
                start("resize", migration_is("migrating"), task_state="resize_migrating"),
                calling(
                    "resize",
                    announcing(
                        "instance.resize.end",
                        {"task_state": "resize_migrated"},
                        effects=(migration_is("post-migrating"),),
                    ),
                ),
            ),
            *work(
                "compute_finish_resize",
                calling(
                    "arrive",
                    announcing("instance.resize_finish.start", resized_there, PublisherService.DESTINATION),
                    moved_guest,
                    host=destination_host,
                ),
                end("resize_finish", migration_is("finished"), vm_state="resized"),
                source=PublisherService.DESTINATION,
            ),
        ),
        vm_states=("active", "stopped"),
        needs_host=True,
        task="resize_prep",
        migration=(migration_type, "pre-migrating"),
        failure=as_before,
        failure_event="compute_task.migrate_server.error",
        rescheduling=preparation,
        reschedule_event="instance.resize.error",
        undo=host_call("undo_move", back_from_target, origin_host),
    )


MOVES = (
    _move("resize", "resize"),
    _move("migrate", "migration"),
    Action(
        "confirmResize",
        word="confirmResize",
        record="confirmResize",
        steps=work(
            "compute_confirm_resize",
            start("resize_confirm"),
            calling(
                "delete",
                announcing(
                    "instance.resize_confirm.end", confirmed, effects=(give_back_others, migration_is("confirmed"))
                ),
                host=host_left_behind,
            ),
        ),
        vm_states=("resized",),
        continues="confirming",
    ),
    Action(
        "revertResize",
        word="revertResize",
        record="revertResize",
        steps=work(
            "compute_revert_resize",
            announcing("instance.exists", effects=(aim_back,)),
            start("resize_revert", source=PublisherService.DESTINATION),
            calling(
                "revert",
                announcing(
                    "instance.resize_revert.end",
                    reverted,
                    PublisherService.DESTINATION,
                    effects=(give_back_origin, migration_is("reverted")),
                ),
                reverted_guest,
                host=destination_host,
            ),
        ),
        vm_states=("resized",),
        task="resize_reverting",
        continues="reverting",
    ),
    Action(
        "os-migrateLive",
        word="os-migrateLive",
        record="live-migration",
        steps=(
            *work("conductor_live_migrate_instance", *scheduling(choose_host), source=PublisherService.CONDUCTOR),
            *work(
                "compute_live_migration",
                start("live_migration_pre", migration_is("preparing"), source=PublisherService.DESTINATION),
                announcing("instance.live_migration_pre.end", source=PublisherService.DESTINATION),
                calling("migrate", start("live_migration_post", migration_is("running")), to_target),
                start("live_migration_post_dest", migration_is("post-migrating"), source=PublisherService.DESTINATION),
                announcing(
                    "instance.live_migration_post_dest.end",
                    placed(None),
                    PublisherService.DESTINATION,
                    effects=(give_back_origin, migration_is("completed")),
                ),
                calling(
                    "leave",
                    announcing("instance.live_migration_post.end", source=PublisherService.ORIGIN),
                    to_target,
                    host=origin_host,
                ),
                source=PublisherService.DESTINATION,
            ),
        ),
        vm_states=("active", "paused"),
        needs_host=True,
        task="migrating",
        migration=("live-migration", "queued"),
        failure=as_before,
        failure_event="compute_task.migrate_server.error",
        undo=host_call("undo_migrate", to_target, origin_host),
    ),
    Action(
        "evacuate",
        word="evacuate",
        record="evacuate",
        steps=(
            *scheduling(choose_host),
            announcing("instance.rebuild_scheduled", source=PublisherService.CONDUCTOR),
            *work(
                "compute_rebuild_instance",
                announcing(
                    "instance.rebuild.start",
                    placed("rebuilding"),
                    PublisherService.DESTINATION,
                    (migration_is("pre-migrating"),),
                ),
                progress(task_state="rebuild_block_device_mapping"),
                progress(task_state="rebuild_spawning"),
                calling(
                    "evacuate",
                    announcing("instance.rebuild.end", evacuated, effects=(give_back_origin, migration_is("done"))),
                    evacuated_guest,
                ),
                source=PublisherService.DESTINATION,
            ),
        ),
        vm_states=("active", "stopped", "error"),
        task_states=ANY_TASK,
        needs_host=True,
        task="rebuilding",
        event_type="instance.evacuate",
        undo=host_call("undo_create", host=destination_host),
        migration=("evacuation", "accepted"),
        failure_event="compute_task.rebuild_server.error",
        replaces_others=True,
    ),
)
