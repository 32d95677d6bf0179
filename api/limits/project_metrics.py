"""How much of an API each project asks for, and how often it is refused by a limit; of a bounded number of projects."""

from prometheus_client import CollectorRegistry, Counter

OTHERS = "others"
_REFUSED = {"429", "503"}


class ProjectMetrics:
    """For one process. most: of how many projects, those that come first; all others count together."""

    def __init__(self, registry: CollectorRegistry, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._requests = Counter(
            "fleetlight_api_project_requests",
            "Requests by project, and whether they were `refused` with 429 or 503; with `api.max_project_metrics`",
            ["project", "refused"],
            registry=registry,
        )

    def count(self, project: str, status: str) -> None:
        """A request of a caller of this project, "" for none, and the status of its answer."""
        if not self._most:
            return
        if project not in self._known:
            if len(self._known) < self._most:
                self._known.add(project)
            else:
                project = OTHERS
        self._requests.labels(project, "yes" if status in _REFUSED else "no").inc()
