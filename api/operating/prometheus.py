"""Figures of the last hour from the operator's Prometheus: of all processes, and across restarts.

One range query reads all series, each an expression over the metrics of docs/reference/metrics.md.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec
from pydantic import SecretStr

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.http import UpstreamConnection

_TIMEOUT_S = 5.0
_RATE = "[1m]"
_SECONDS = f"sum by (le) (rate(fleetlight_api_request_seconds_bucket{_RATE}))"
_EXPRESSIONS: Mapping[str, str] = {
    "requests_per_s": f"sum(rate(fleetlight_api_requests_total{_RATE}))",
    "latency_p50_ms": f"1000 * histogram_quantile(0.5, {_SECONDS})",
    "latency_p99_ms": f"1000 * histogram_quantile(0.99, {_SECONDS})",
    "route_index": f'sum(rate(fleetlight_lists_total{{route="index"}}{_RATE}))',
    "route_live": f'sum(rate(fleetlight_lists_total{{route!="index"}}{_RATE}))',
    "route_skipped": f'sum(rate(fleetlight_lists_total{{complete="no"}}{_RATE}))',
    "age_max_s": "max(fleetlight_api_index_age_seconds unless on (cell) fleetlight_cell_disabled == 1)",
    "lag_total": "sum(max by (cell) (fleetlight_indexer_lag_changes))",
    "messages_per_s": f"sum(rate(fleetlight_indexer_messages_total{_RATE}))",
    "jobs_waiting": 'sum(max by (cell, status) (fleetlight_worker_jobs{status!="running"}))',
}
_QUERY = " or ".join(f'label_replace({each}, "series", "{name}", "", "")' for name, each in _EXPRESSIONS.items())
_Values = Sequence[float | None]


class _Matrix(msgspec.Struct):
    metric: Mapping[str, str]
    values: Sequence[tuple[float, str]]


class _Data(msgspec.Struct):
    result: Sequence[_Matrix]


class _Answer(msgspec.Struct):
    data: _Data


class PrometheusSeries:
    """Queries one Prometheus, one query at a time; threads may use it. Raises UpstreamError for an unusable url.

    url: the address for browsers, without /api/v1. token: a bearer token to send, if any.
    """

    def __init__(self, url: str, token: SecretStr | None) -> None:
        self._connection = UpstreamConnection(url, timeout_s=_TIMEOUT_S)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
        self._lock = threading.Lock()

    def read(self, begins_s: int, step_s: int, count: int) -> Mapping[str, _Values]:
        """Read the values of each series at `count` moments from `begins_s` (Unix time) on; None for missing values.

        Raises UpstreamError when Prometheus does not answer, or not as expected.
        """
        asked = {"query": _QUERY, "start": begins_s, "end": begins_s + step_s * (count - 1), "step": step_s}
        with self._lock:
            answer = self._connection.get(f"/api/v1/query_range?{urlencode(asked)}", self._headers)
        if answer.status != 200:
            raise UpstreamError(
                f"{self._connection.name} answers {answer.status}: {answer.body[:200].decode(errors='replace')}"
            )
        try:
            found = msgspec.json.decode(answer.body, type=_Answer).data.result
            by_name = {each.metric.get("series"): _at_steps(each, begins_s, step_s) for each in found}
        except (msgspec.DecodeError, ValueError) as error:
            raise UpstreamError(f"{self._connection.name} answers what is no result of a query: {error}") from None
        return {name: [by_name.get(name, {}).get(step) for step in range(count)] for name in _EXPRESSIONS}

    def close(self) -> None:
        self._connection.close()


def prometheus_of(settings: ApiSettings) -> PrometheusSeries | None:
    """Open the configured Prometheus; None without one."""
    url = settings.prometheus_url
    return None if url is None else PrometheusSeries(url, settings.prometheus_token)


def _at_steps(found: _Matrix, begins_s: int, step_s: int) -> Mapping[int, float]:
    """Return the values by number of step, without NaN, such as a latency without requests."""
    numbers = ((round((at - begins_s) / step_s), float(value)) for at, value in found.values)
    return {step: value for step, value in numbers if math.isfinite(value)}
