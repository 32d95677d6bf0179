"""What Nova's own API answers over the databases of make_world.py: `answer.py WORLD.json < requests > answers`.

Runs in the environment of tests/nova/requirements.lock. A request is `{"path", "version", "is_admin", "project"}`, an
answer `{"status", "body"}`; lines of JSON. There is no Keystone, and no Neutron, which would know the security groups.
"""

from __future__ import annotations

import json
import pathlib
import sys

import nova.conf
import webob
from nova import config, context, objects
from nova.api.openstack import FaultWrapper, compute
from nova.db.api import api as api_database
from nova.db.main import api as main_database
from nova.network import security_group_api


def application(world: dict[str, str]) -> FaultWrapper:
    config.parse_args(["nova", "--config-file", str(pathlib.Path(world["folder"]) / "nova.conf")])
    objects.register_all()
    main_database.configure(nova.conf.CONF)
    api_database.configure(nova.conf.CONF)
    security_group_api.get_instances_security_groups_bindings = lambda *_: {}
    return FaultWrapper(compute.APIRouterV21())


def answer(app: FaultWrapper, asked: dict[str, object]) -> dict[str, object]:
    request = webob.Request.blank(asked["path"], base_url="http://nova/v2.1")
    request.environ["nova.context"] = context.RequestContext(
        user_id="33333333333333333333333333333333",
        project_id=asked["project"],
        is_admin=asked["is_admin"],
        roles=["admin", "member", "reader"] if asked["is_admin"] else ["member", "reader"],
    )
    request.headers["OpenStack-API-Version"] = f"compute {asked['version']}"
    response = request.get_response(app)
    return {"status": response.status_int, "body": json.loads(response.body)}


def main() -> None:
    app = application(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(app, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
