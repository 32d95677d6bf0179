"""Nova's own compute API over HTTP, in a process of its own: an administrator asks it, whoever asks."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "serve.py"


@contextmanager
def nova_api(folder: Path, nova_environment: str) -> Iterator[str]:
    """Its address. folder: where the nova.conf of the deployment is."""
    world = folder / "served.json"
    world.write_text(json.dumps({"folder": str(folder)}))
    python = Path(nova_environment).parent / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with subprocess.Popen(
        [python, "-W", "ignore", SCRIPT, world], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "Nova has ended; what it said is above"
            yield f"http://127.0.0.1:{port}/v2.1"
        finally:
            process.kill()
