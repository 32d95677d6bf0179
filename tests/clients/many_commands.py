"""Runs many `openstack` commands in one process, since starting it is most of what each of them costs.

Argument: the name of the cloud. Standard input: a list of commands, as JSON. Standard output: of each, what it was, its
exit code and what it printed. The first command sets the cloud and the microversion of them all, as the client keeps
its connections.
"""

import json
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from unittest.mock import patch

from openstackclient.shell import OpenStackShell
from osc_lib import utils

# With --wait the client looks again after five seconds, and what it waits for here takes less than one.
_LOOK_AGAIN_AFTER_S = 1


def main() -> None:
    results = []
    for command in json.load(sys.stdin):
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            code: str | int | None
            try:
                code = OpenStackShell().run(["--os-cloud", sys.argv[1], *shlex.split(command)])
            except SystemExit as wrong_usage:
                code = wrong_usage.code
        results.append((command, code, printed.getvalue()))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    with patch.object(utils, "wait_for_status", partial(utils.wait_for_status, sleep_time=_LOOK_AGAIN_AFTER_S)):
        main()
