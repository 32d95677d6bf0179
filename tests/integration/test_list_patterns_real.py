"""No pattern that somebody asks for takes the index from everybody, or ends in an error: where one database cannot
express it, another one answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.servers.index_server import index_at

pytestmark = [pytest.mark.no_rerun, pytest.mark.elasticsearch, pytest.mark.postgresql]
CHARACTERS = [chr(0x4E00 + 2 * number) for number in range(120)]
# Elasticsearch refuses each of them.
TOO_COMPLEX = (
    r"(ab|ba){1,30}\db-(ab|ba)",
    r"[^a]{1,30}[α-ω]*(ab|ba)b+\w{0,9}\w?[a-c]?-",
    r"(\w{0,9}😀+\d+a*(a*b)+[a-c]?){3}",
    ".*a.{20}$",
    "(a|b)*a[ab]{30}",
    "x" * 200,
    ".{60}" + "".join(CHARACTERS),
)
# Elasticsearch would take 3 to 60 s for each of them, or all of its memory.
TOO_SLOW = (
    r"(\w?){255}",
    "(a?){1000}",
    "(a?){1000}" * 20,
    f"([{''.join(CHARACTERS[:60])}]?){{255}}",
    f"[^{''.join(CHARACTERS[:60])}]*[ab{''.join(CHARACTERS[:20])}].{{9}}",
)
NESTED = tuple("(" * depth + "web" + ")" * depth for depth in (30, 31, 250, 900))
STRONG = {"Fleetlight-Consistency": "strong"}


@pytest.fixture
def fleet(
    tmp_path: Path, new_postgresql_database: Callable[[], str], elasticsearch_url: str, elasticsearch_prefix: str
) -> Iterator[ComputeFleet]:
    index = index_at(elasticsearch_url, elasticsearch_prefix.rstrip("-"))
    with compute_fleet(tmp_path, index, new_postgresql_database) as fleet:
        fleet.create("north", display_name="ab" * 3 + "0b-ba")
        fleet.create("south", display_name="web")
        fleet.index()
        yield fleet


def test_no_pattern_takes_the_index_away_or_fails(fleet: ComputeFleet) -> None:
    api = fleet.api()
    for pattern in (*TOO_COMPLEX, *TOO_SLOW, *NESTED):
        path = f"/v2.1/servers?all_tenants=1&name={quote(pattern)}"
        assert api.ids(path) == api.ids(path, STRONG)
        assert api.index.why_not is None
    assert len(api.ids(f"/v2.1/servers?all_tenants=1&name={quote(TOO_COMPLEX[0])}")) == 1
    assert len(api.ids(f"/v2.1/servers?all_tenants=1&name={quote(NESTED[-1])}")) == 1
