"""The OpenAPI document, and calls made from it: none is answered with a 500, or with what it does not document.

FLEETLIGHT_TEST_CALLS says how many calls, which all operations of some microversions share, and how many were made is
written to the terminal. Without it there are few, and the same ones each time.
"""

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.settings import ApiSettings
from fleetlight.api.shared.endpoint import NEWEST
from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import Api, ComputeFleet, microversion
from tests.contract.identity_site import Site
from tests.contract.streams import Event, stream
from tests.support.fleets.identity import ProgramsOnly, password_login, project_scope

CALLS = int(os.environ.get("FLEETLIGHT_TEST_CALLS", "0"))
# Many calls take their time: this many seconds for each test.
pytestmark = pytest.mark.timeout(120 + CALLS)
NEWEST_VERSION = f"2.{NEWEST[1]}"
SUCCESSES = {"200", "201", "202", "204"}
VERSIONS = ("2.1", "2.36", "2.55", "2.63", "2.79", NEWEST_VERSION) if CALLS else ("2.1", "2.63", NEWEST_VERSION)


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    for name, cell in fleet.cells.items():
        nodes_in(fleet.native, cell).add_hosts([NewHost(f"{name}-1", Amount.of_gib(8, 16384, 100))])
    flavor = fleet.fleet.flavors.find("1").payload()
    fleet.fill(60, flavor=flavor, host="north-1", tags=["canary"], metadata={"role": "web"})
    return fleet


@pytest.fixture(scope="module")
def known(api: Api, fleet: ComputeFleet) -> Mapping[str, list[str]]:
    """What there is to be named in addresses, so that calls get further than to a 404."""
    group = fleet.fleet.server_groups.create("group", "affinity", project_id="demo", user_id="admin")
    aggregate = fleet.fleet.aggregates.create("racks", {"availability_zone": "east"})
    hypervisors = api.get("/v2.1/os-hypervisors").json()["hypervisors"]
    services = api.get("/v2.1/os-services", microversion("2.53")).json()["services"]
    return {
        "server_id": api.ids("/v2.1/servers"),
        "aggregate_id": [str(aggregate.number)],
        "flavor_id": ["1", "2", "3", "4"],
        "group_id": [group.uuid],
        "hypervisor_id": [str(hypervisor["id"]) for hypervisor in hypervisors] + ["north"],
        "service_id": ["enable", "disable", "force-down", *(service["id"] for service in services)],
        "quota_project": ["demo"],
        "class_name": ["default"],
        "tenant_id": ["demo"],
        "tag": ["canary"],
        "key": ["role"],
    }


READER = {"X-Roles": "reader"}
Operation = APIOperation[Any, Any, Any, Any]
Call = Case[Any]


def operations(api: Api, version: str) -> list[Operation]:
    document = api.get(f"/openapi.json?microversion={version}").json()
    results = list(schemathesis.openapi.from_dict(document).get_all_operations())
    found = [result.ok() for result in results if isinstance(result, Ok)]
    assert found
    assert len(found) == len(results)
    return found


def call(api: Api, case: Call) -> httpx.Response:
    kwargs: dict[str, Any] = case.as_transport_kwargs(base_url="http://api.test")
    content = json.dumps(kwargs["json"]) if "json" in kwargs else kwargs.get("data")
    return api.send(
        kwargs["method"], kwargs["url"], headers=kwargs["headers"], params=kwargs["params"], content=content
    )


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=[pytest.mark.night] * (each != NEWEST_VERSION)) for each in VERSIONS]
)
def test_calls_are_answered_as_documented(
    api: Api, known: Mapping[str, list[str]], version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = operations(api, version)
    # What can only say that it is gone, or that it cannot be done, is asked once.
    lively = [operation for operation in found if set(operation.definition.raw["responses"]) & SUCCESSES]
    examples = max(1, -(-CALLS // (len(VERSIONS) * len(lively))))
    answers = Counter[int]()
    for operation in found:
        answers += _check(api, operation, known, version, examples if operation in lively else 1)
    if CALLS:
        with capsys.disabled():
            sys.stdout.write(f"{version}: {answers.total()} calls of {len(found)} operations, {dict(answers)}\n")


def _check(api: Api, operation: Operation, known: Mapping[str, list[str]], version: str, examples: int) -> Counter[int]:
    """Make calls; returns how many got which status."""
    answers = Counter[int]()
    right = operation.as_strategy()
    wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(
        max_examples=examples,
        derandomize=not CALLS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=right | right | wrong, names=st.randoms(use_true_random=False))
    def hold(case: Call, names: Any) -> None:
        for name in set(case.path_parameters or {}) & set(known):
            if names.random() < 0.8:
                case.path_parameters[name] = names.choice(known[name])
        # Without it, or with another one, the request is one of another document.
        case.headers.update(microversion(version))
        if names.random() < 0.2:
            case.headers.update(READER)
        response = call(api, case)
        answers[response.status_code] += 1
        documented = operation.definition.raw["responses"]
        assert str(response.status_code) in documented, (response.status_code, response.text)
        assert response.status_code != 500, response.text
        if response.content:
            media_type = response.headers["Content-Type"].partition(";")[0]
            assert media_type in documented[str(response.status_code)]["content"]
            operation.validate_response(response)

    hold()
    return answers


class NoRoles(ProgramsOnly):
    """Knows the caller, who may do nothing."""

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        return Caller("ada", "demo", frozenset())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_refusal_of_a_caller_without_roles_is_documented(
    fleet: ComputeFleet, known: Mapping[str, list[str]], version: str
) -> None:
    api = fleet.api(identity=NoRoles())
    document = api.get(f"/openapi.json?microversion={version}").json()
    names = defaultdict(lambda: "1", {name: values[0] for name, values in known.items()})
    refusing, silent = 0, []
    for path, methods in document["paths"].items():
        if "get" in methods and path.startswith("/v2.1/"):
            answer = api.get(path.format_map(names), microversion(version))
            refusing += answer.status_code == 403
            if str(answer.status_code) not in methods["get"]["responses"]:
                silent.append((path, answer.status_code))
    assert silent == []
    assert refusing > 20


@pytest.mark.parametrize("version", VERSIONS)
def test_microversion_header_may_be_left_out(api: Api, version: str) -> None:
    document = api.get(f"/openapi.json?microversion={version}").json()
    headers = [
        parameter
        for methods in document["paths"].values()
        for operation in methods.values()
        for parameter in operation["parameters"]
        if parameter["name"] == "OpenStack-API-Version"
    ]
    assert len(headers) > 100
    assert {(header["required"], header["schema"]["enum"][0]) for header in headers} == {(False, f"compute {version}")}
    assert all("2.1" in header["description"] for header in headers)


def test_answer_with_a_key_too_few_or_too_many_is_not_as_documented(api: Api) -> None:
    answer = api.get("/v2.1/limits")
    document = api.get("/openapi.json?microversion=2.1").json()
    success = document["paths"]["/v2.1/limits"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    limits = success["properties"]["limits"]
    _operation_of(document, "get_limits").validate_response(answer)
    wrong: Sequence[Mapping[str, Any]] = (
        {"properties": {**limits["properties"], "rate": {"type": "string"}}},
        {"properties": {"rate": {}}, "required": []},
        {"required": ["colour"]},
    )
    for change in wrong:
        success["properties"]["limits"] = {**limits, **change}
        with pytest.raises(AssertionError):
            _operation_of(document, "get_limits").validate_response(answer)


def _operation_of(document: Mapping[str, Any], name: str) -> Operation:
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    return schema.find_operation_by_id(name)


def test_document_follows_the_microversion(api: Api) -> None:
    """By the parameter, by the header, and else the newest."""
    asked = {
        "2.54": api.get("/openapi.json?microversion=2.54"),
        "2.55": api.get("/openapi.json", microversion("2.55")),
        NEWEST_VERSION: api.get("/openapi.json"),
    }
    for version, response in asked.items():
        assert response.json()["info"]["version"] == version
    assert "put" not in asked["2.54"].json()["paths"]["/v2.1/flavors/{flavor_id}"]
    assert "put" in asked["2.55"].json()["paths"]["/v2.1/flavors/{flavor_id}"]


@pytest.mark.parametrize(("version", "status"), [("2.1000", 406), ("two", 400)])
def test_document_of_no_microversion_is_refused(api: Api, version: str, status: int) -> None:
    assert api.get(f"/openapi.json?microversion={version}").status_code == status


def test_actions_are_those_of_the_microversion(api: Api) -> None:
    for version, are_there in (("2.5", True), ("2.6", False)):
        document = api.get(f"/openapi.json?microversion={version}").text
        assert ("os-getVNCConsole" in document) is are_there


def test_headers_and_the_stream_of_a_list_are_documented(api: Api) -> None:
    document = api.get("/openapi.json").json()
    detail, brief = (document["paths"][f"/v2.1/servers{path}"]["get"] for path in ("/detail", ""))
    taken = {parameter["name"] for parameter in detail["parameters"] if parameter["in"] == "header"}
    assert taken >= {"Fleetlight-Consistency", "Fleetlight-Cell-Timeout", "Last-Event-ID", "OpenStack-API-Version"}
    assert set(detail["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(brief["responses"]["200"]["content"]) == {"application/json"}
    given = detail["responses"]["200"]["headers"]
    for name, value in api.get("/v2.1/servers/detail").headers.items():
        if name.startswith(("fleetlight", "openstack", "x-")):
            assert name in {known.lower() for known in given}, value


@pytest.mark.parametrize("version", ["2.1", NEWEST_VERSION])
def test_events_of_a_stream_are_as_documented(fleet: ComputeFleet, version: str) -> None:
    api = fleet.api(settings=ApiSettings(max_watches=1))
    document = api.get(f"/openapi.json?microversion={version}").json()
    content = document["paths"]["/v2.1/servers/detail"]["get"]["responses"]["200"]["content"]
    items = content["text/event-stream"]["schema"]["contentSchema"]["items"]["oneOf"]
    documented = {
        item["properties"]["event"]["const"]: jsonschema_rs.validator_for(item["properties"]["data"]["contentSchema"])
        for item in items
    }
    kept, deleted = (fleet.create("north", display_name="watched") for _ in range(2))
    fleet.number_changes()

    async def scenario() -> list[Event]:
        async with stream(api, "name=watched", microversion(version), last_id="of somebody else") as watch:
            told = [await watch.next(), await watch.next()]
            fleet.operations("north").update(kept, {"display_name": "still watched"})
            fleet.operations("north").delete(deleted)
            fleet.number_changes()
            return [*told, await watch.next(), await watch.next()]

    told = api.run(scenario())
    assert [event.name for event in told] == ["ready", "reset", "changed", "removed"]
    for event in told:
        documented[event.name].validate(event.data)
    with pytest.raises(jsonschema_rs.ValidationError):
        documented["changed"].validate({"server": {"id": kept}})


def test_consistency_that_is_documented_is_understood(api: Api) -> None:
    token = api.get(f"/v2.1/servers/{api.ids('/v2.1/servers')[0]}").headers["Fleetlight-Token"]
    [parameter] = [
        each
        for each in api.get("/openapi.json").json()["paths"]["/v2.1/servers"]["get"]["parameters"]
        if each["name"] == "Fleetlight-Consistency"
    ]
    for value in ("any", "bounded", "strong", f"at-least {token}", f"at-least {token}, {token}"):
        assert re.search(parameter["schema"]["pattern"], value)
        assert api.get("/v2.1/servers", {"Fleetlight-Consistency": value}).status_code == 200
    assert not re.search(parameter["schema"]["pattern"], "perhaps")


def test_every_operation_has_a_name_of_its_own(api: Api) -> None:
    document = api.get("/openapi.json").json()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_identity_and_image_services_answer_as_documented(
    fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = Site(fleet, tmp_path_factory.mktemp("users"))
    credential = site.new_credential("ada")
    token = site.log_in("ada")
    names = {"user_id": "id-ada", "project_id": "demo", "domain_id": "default", "credential_id": credential["id"]}
    roles = site.get("/identity/v3/roles", token).json()["roles"]
    names |= {"role_id": roles[0]["id"], "image_id": DEFAULT_IMAGES[0].id, "region_id": "RegionOne"}
    for kind in ("service", "endpoint"):
        names[f"{kind}_id"] = site.get(f"/identity/v3/{kind}s", token).json()[f"{kind}s"][0]["id"]
    document = site.api.get("/openapi.json").json()
    checked = 0
    for path, methods in document["paths"].items():
        if "get" not in methods or not path.startswith(("/identity", "/image")):
            continue
        response = site.get(path.format_map(names), token, **{"X-Subject-Token": token})
        assert str(response.status_code) in methods["get"]["responses"], (path, response.text)
        _operation_of(document, methods["get"]["operationId"]).validate_response(response)
        checked += 1
    assert checked == 27


def test_explanations_and_health_answer_as_documented(api: Api) -> None:
    document = api.get("/openapi.json").json()
    for path in ("/fleetlight/explain?request=GET /v2.1/servers", "/healthz", "/readyz", "/", "/v2.1/"):
        response = api.get(path)
        operation = document["paths"][path.partition("?")[0]]["get"]
        success = operation["responses"][str(response.status_code)]
        assert response.headers["Content-Type"].partition(";")[0] in success["content"], response.text
        _operation_of(document, operation["operationId"]).validate_response(response)


def test_bodies_of_the_identity_service_are_documented(fleet: ComputeFleet, tmp_path: Path) -> None:
    """A login and a new application credential as clients send them, and calls made from the document."""
    site = Site(fleet, tmp_path)
    document = site.api.get("/openapi.json").json()
    tokens, credentials = (
        _operation_of(document, f"post_identity_v3_{path}")
        for path in ("auth_tokens", "users_user_id_application_credentials")
    )
    credential = {"name": "nightly", "roles": [{"name": "reader"}], "expires_at": None}
    for operation, body in (
        (tokens, password_login("ada", scope=project_scope())),
        (credentials, {"application_credential": credential}),
    ):
        [media_type] = operation.body
        assert media_type.is_valid(body)
        assert not media_type.is_valid({})

    @settings(max_examples=20, derandomize=True, deadline=None, database=None, phases=[Phase.generate])
    @given(case=tokens.as_strategy())
    def hold(case: Call) -> None:
        response = call(site.api, case)
        assert response.status_code in {400, 401, 429}, response.text
        assert set(response.json()["error"]) == {"code", "message", "title"}

    hold()
