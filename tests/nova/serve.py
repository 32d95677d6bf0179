"""Nova's own compute API over HTTP, for an administrator: `serve.py WORLD.json` prints its port and runs until killed.

Runs in the environment of tests/nova/requirements.lock, over databases as those of make_world.py.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any
from wsgiref.simple_server import make_server

from answer import application
from nova import context

_PREFIX = "/v2.1"


def main() -> None:
    nova = application(json.loads(pathlib.Path(sys.argv[1]).read_text()))

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["nova.context"] = context.RequestContext(
            user_id="33333333333333333333333333333333",
            project_id="11111111111111111111111111111111",
            is_admin=True,
            roles=["admin", "member", "reader"],
        )
        environ["SCRIPT_NAME"] = _PREFIX
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(_PREFIX)
        answer: Iterable[bytes] = nova(environ, start_response)
        return answer

    with make_server("127.0.0.1", 0, serve) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
