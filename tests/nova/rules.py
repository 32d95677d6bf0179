"""Prints Nova's rules and what each of them checks by default, as one JSON object: `rules.py > default_rules.json`.

Runs in the environment of tests/nova/requirements.lock.
"""

import json
import sys

from nova.policies import list_rules


def main() -> None:
    rules = {rule.name: rule.check_str for rule in list_rules()}
    sys.stdout.write(json.dumps(rules, indent=1, sort_keys=True) + "\n")


main()
