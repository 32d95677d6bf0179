"""One model for all microversions: which keys each of them has, and of which type."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from fleetlight.api.bodies.request_body import RequestModel
from fleetlight.api.bodies.versioned_models import Since, Until, model_at


class _Network(RequestModel):
    uuid: str
    tag: Annotated[str, Since(32), Until(36), Since(42)] = "none"


class _Server(RequestModel):
    name: str
    networks: Annotated[list[_Network] | Literal["auto"], Since(1, list[_Network]), Since(37, is_required=True)] = (
        Field(default=[], alias="nets")
    )
    hostname: Annotated[str, Since(90, Annotated[str, Field(max_length=3)]), Since(94)] = ""
    files: Annotated[list[str], Until(56)] = Field(default=[])
    plain: int = 1

    def greeting(self) -> str:
        return f"{self.name} {self.hostname}"


def read(minor: int, **document: Any) -> _Server:
    return model_at(_Server, minor).model_validate({"name": "a", **document})


@pytest.mark.parametrize(
    ("minor", "document"),
    [
        (1, {"nets": [{"uuid": "u"}], "files": ["f"]}),
        (32, {"nets": [{"uuid": "u", "tag": "t"}]}),
        (36, {"nets": [{"uuid": "u", "tag": "t"}]}),
        (37, {"nets": "auto"}),
        (42, {"nets": [{"uuid": "u", "tag": "t"}]}),
        (56, {"nets": "auto", "files": []}),
        (90, {"nets": "auto", "hostname": "abc"}),
        (104, {"nets": "auto", "hostname": "abcdef"}),
    ],
)
def test_microversion_has_its_keys_with_their_types(minor: int, document: dict[str, Any]) -> None:
    assert read(minor, **document).model_dump(by_alias=True, exclude_unset=True) == {"name": "a", **document}


@pytest.mark.parametrize(
    ("minor", "document", "place"),
    [
        (1, {"nets": "auto"}, "nets"),
        (31, {"nets": [{"uuid": "u", "tag": "t"}]}, "tag"),
        (37, {"nets": [{"uuid": "u", "tag": "t"}]}, "tag"),
        (37, {}, "nets"),
        (57, {"nets": "auto", "files": []}, "files"),
        (89, {"nets": "auto", "hostname": "abc"}, "hostname"),
        (90, {"nets": "auto", "hostname": "abcdef"}, "hostname"),
        (94, {"nets": "auto", "hostname": 1}, "hostname"),
    ],
)
def test_microversion_refuses_what_others_have(minor: int, document: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(minor, **document)
    assert any(place in error["loc"] for error in caught.value.errors())


def test_field_that_a_microversion_lacks_has_its_default() -> None:
    server = read(57, nets=[{"uuid": "u"}])
    assert (server.files, server.hostname, server.greeting()) == ([], "", "a ")
    assert isinstance(server.networks, list)
    assert server.networks[0].tag == "none"
    assert isinstance(server, _Server)


def test_microversions_with_the_same_keys_share_a_model() -> None:
    assert model_at(_Server, 43) is model_at(_Server, 56)
    assert model_at(_Server, 56) is not model_at(_Server, 57)
    assert model_at(RequestModel, 5) is RequestModel


def test_schema_of_a_microversion_names_its_keys_alone() -> None:
    assert [*model_at(_Server, 1).model_json_schema()["properties"]] == ["name", "nets", "files", "plain"]
    assert model_at(_Server, 37).model_json_schema()["required"] == ["name", "nets"]
