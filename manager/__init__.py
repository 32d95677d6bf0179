"""The manager of native cells: what changes them, and what runs on their hosts.

The index, the lists and their faces know nothing of it: they find it as a wing (fleetlight.resources.wings).
"""

from fleetlight.resources.wings import Wing

WING = Wing(
    commands={
        "up": (
            "fleetlight.manager.commands.up",
            "Run a whole fleet by one command: cells, bus, indexer and API, on SQLite files in one folder.",
        ),
        "worker": (
            "fleetlight.manager.commands.worker",
            "Carry out the jobs of all native cells; cells added later are included.",
        ),
        "balance": (
            "fleetlight.manager.commands.balance",
            "Show which moves balance the nodes of a cluster, by the score of Ganeti's hbal, and make them with "
            "--execute.",
        ),
        "capacity": (
            "fleetlight.manager.commands.capacity",
            "Show what the nodes of all cells have free, and how many more instances of a size fit.",
        ),
        "reserve": (
            "fleetlight.manager.commands.reserve",
            "Reserve capacity for instances, and build reserved instances.",
        ),
        "node-agent": (
            "fleetlight.manager.commands.agent",
            "Run on a host, and carry out the requests of its cell's workers.",
        ),
        "node": ("fleetlight.manager.commands.node", "Read the state that nodes with an agent report."),
        "host": ("fleetlight.manager.commands.host", "The hosts of native cells."),
    },
    faces="fleetlight.manager.faces.faces",
    cells="fleetlight.manager.commands.certificates",
)
