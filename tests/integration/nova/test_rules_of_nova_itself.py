"""The table of rules that tests/contract/test_rules_of_nova.py trusts is Nova's own."""

import json
import os
import subprocess
from pathlib import Path

_NOVA = Path(__file__).resolve().parents[2] / "nova"


def test_table_of_rules_is_what_nova_has_by_default(nova_environment: str) -> None:
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run(
        [python, "-P", _NOVA / "rules.py"], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(said.stdout) == json.loads((_NOVA / "default_rules.json").read_text())
