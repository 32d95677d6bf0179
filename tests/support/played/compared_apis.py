"""The two sides of a comparison: Nova's own API over HTTP, and an application in this process."""

import json
import time
from dataclasses import dataclass

from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import Question
from tests.contract.compute_fleet import Api
from tests.nova.questions import DEMO, USER

# There is no Neutron, which Nova asks for these.
NEEDING_NEUTRON = {"ip", "ip6"}
WHO = {"X-Project-Id": DEMO, "X-User-Id": USER, "X-Roles": "admin"}


@dataclass
class InProcess:
    """As fleetlight.cli.compare.sites.Site, of an application without a server; asked as who tests/nova/serve.py is."""

    api: Api

    def ask(self, question: Question) -> Answer:
        started_s = time.perf_counter()
        answer = self.api.get(f"/v2.1{question.target}", WHO, question.headers)
        return Answer(answer.status_code, json.loads(answer.content), answer.headers, time.perf_counter() - started_s)
