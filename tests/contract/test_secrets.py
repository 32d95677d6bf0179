"""What holds a secret never shows it: not in a log, in a text, or in an answer that says what is wrong."""

import dataclasses
import importlib
import inspect
import json
import logging
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, SecretStr

from fleetlight.api.identity.tokens.requests import LOGIN, NEW_CREDENTIAL
from fleetlight.cells.model import InstanceRow
from fleetlight.cli.logging import LogSettings, configure_logging
from fleetlight.manager.faces.servers.action_bodies import CHANGE_PASSWORD, EVACUATE, REBUILD, RESCUE
from fleetlight.manager.faces.servers.create_body import CREATE_SERVER
from fleetlight.manager.operations.actions.accepting import Acceptance
from tests.contract.compute_fleet import ComputeFleet
from tests.support.terminal import terminal
from tests.support.values import IMAGE

pytestmark = pytest.mark.no_rerun

SECRET = "aHVudGVyMjEyMzQ1Ng=="
_FOLDERS = ("notifications", "query", "cells", "indexer", "api", "cli", "manager.faces", "manager.commands")
PACKAGES = tuple(f"fleetlight.{folder}" for folder in _FOLDERS)
NAMES_OF_SECRETS = re.compile(r"password|secret|api_key|admin_pass|user_data|database_url|transport_url|^contents$")
# What it is: a hash, the way to a file or another name; or a server as the index and the bus have it, which say as much
# as a list does.
OTHER_TYPES = {
    "fleetlight.cells.upstream.address.UpstreamAddress.password_file",
    "fleetlight.cli.cells.upstream_cells.UpstreamLogin.password_file",
    "fleetlight.api.identity.tokens.directory.Credential.secret_hash",
    "fleetlight.api.identity.tokens.directory.User.password_hash",
    "fleetlight.api.identity.tokens.requests.Login.password",
}
SERVERS = (
    "fleetlight.notifications.payloads.",
    "fleetlight.indexer.",
    "fleetlight.views.compute.",
    "fleetlight.cells.kinds.native.instance_rows",
)


def texts_of(value: object) -> str:
    return " ".join([repr(value), str(value), f"{value}", json.dumps(value, default=str)])


@pytest.mark.parametrize(
    ("body", "minor", "document"),
    [
        (CHANGE_PASSWORD, 1, {"changePassword": {"adminPass": SECRET}}),
        (RESCUE, 1, {"rescue": {"adminPass": SECRET}}),
        (EVACUATE, 14, {"evacuate": {"adminPass": SECRET}}),
        (REBUILD, 57, {"rebuild": {"imageRef": IMAGE, "adminPass": SECRET, "user_data": SECRET}}),
        (REBUILD, 1, {"rebuild": {"imageRef": IMAGE, "personality": [{"path": "/a", "contents": SECRET}]}}),
        (CREATE_SERVER, 1, {"server": {"name": "a", "flavorRef": "1", "adminPass": SECRET, "user_data": SECRET}}),
    ],
)
def test_body_of_a_request_does_not_show_its_secrets(body: Any, minor: int, document: Any) -> None:
    assert SECRET not in texts_of(body.check(document, minor))


@pytest.mark.parametrize(
    "identity",
    [
        {"methods": ["password"], "password": {"user": {"id": "a", "password": SECRET}}},
        {"methods": ["token"], "token": {"id": SECRET}},
        {"methods": ["application_credential"], "application_credential": {"id": "a", "secret": SECRET}},
    ],
)
def test_login_does_not_show_its_secret(identity: Any) -> None:
    assert SECRET not in texts_of(LOGIN.check({"auth": {"identity": identity}}))


def test_new_application_credential_does_not_show_its_secret() -> None:
    body = {"application_credential": {"name": "a", "secret": SECRET}}
    assert SECRET not in texts_of(NEW_CREDENTIAL.check(body))


def test_row_does_not_show_its_record() -> None:
    row = InstanceRow("cell", 3, {"uuid": "a", "user_data": SECRET})
    assert texts_of(row).count("InstanceRow(a, cell cell, revision 3)") == 4


def fields_with_secrets() -> Iterator[tuple[str, type, bool]]:
    """The full name of each field with the name of a secret, its type, and whether its object shows it."""
    seen = set()
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if ".migrations." in found.name or found.name.endswith("__main__"):
                continue
            for _, kind in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
                if kind in seen or not kind.__module__.startswith(PACKAGES):
                    continue
                seen.add(kind)
                has_own_text = "__repr__" in kind.__dict__ and "def __repr__" in inspect.getsource(kind)
                for name, field_type, is_shown in fields_of(kind):
                    if NAMES_OF_SECRETS.search(name):
                        yield f"{kind.__module__}.{kind.__name__}.{name}", field_type, is_shown and not has_own_text


def fields_of(kind: type) -> list[tuple[str, Any, bool]]:
    if dataclasses.is_dataclass(kind):
        return [(each.name, each.type, each.repr) for each in dataclasses.fields(kind)]
    if issubclass(kind, msgspec.Struct):
        return [(each.name, each.type, True) for each in msgspec.structs.fields(kind)]
    if issubclass(kind, BaseModel):
        return [(name, each.annotation, each.repr) for name, each in kind.model_fields.items()]
    return []


def test_nothing_that_has_the_name_of_a_secret_is_plain_text() -> None:
    fields = list(fields_with_secrets())
    assert len(fields) > 20
    plain = [
        name
        for name, field_type, is_shown in fields
        if is_shown and SecretStr.__name__ not in str(field_type) and not name.startswith(SERVERS)
    ]
    assert set(plain) - OTHER_TYPES == set()


@pytest.mark.parametrize(
    "content",
    [
        {"adminPass": SECRET, "unknown": 1},
        {"adminPass": [SECRET]},
        {"adminPass": {"a": SECRET}},
    ],
)
def test_answer_that_refuses_a_body_does_not_repeat_its_secrets(fleet: ComputeFleet, content: Any) -> None:
    uuid = fleet.create("north")
    refused = fleet.api().request("POST", f"/v2.1/servers/{uuid}/action", json={"changePassword": content})
    assert refused.status_code == 400
    assert "changePassword" in refused.text
    assert SECRET not in refused.text


def test_new_password_is_not_on_the_terminal_when_its_change_fails(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_hosts()
    uuid = fleet.create("north", host="north-host0", node="north-host0")
    api = fleet.api()

    def fail(self: Acceptance, *arguments: object, **more: object) -> None:
        raise RuntimeError("nobody has expected this")

    monkeypatch.setattr(Acceptance, "accept", fail)
    with terminal() as shown:
        monkeypatch.setattr(sys, "stderr", shown.stream)
        configure_logging(LogSettings(level="debug"))
        body = {"changePassword": {"adminPass": SECRET}}
        assert api.request("POST", f"/v2.1/servers/{uuid}/action", json=body).status_code == 500
        logging.getLogger().handlers.clear()
    assert "nobody has expected this" in shown.text
    assert "request_failed" in shown.text
    assert SECRET not in shown.text
