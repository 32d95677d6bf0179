"""`GET /extensions`: by it old clients decide which requests there are."""

from tests.contract.compute_fleet import Api

# What jclouds looks for before it offers the API of that name.
OF_JCLOUDS = {
    "os-keypairs",
    "os-availability-zone",
    "os-quota-sets",
    "os-quota-class-sets",
    "os-aggregates",
    "os-hosts",
    "os-simple-tenant-usage",
    "os-floating-ips",
    "os-security-groups",
    "os-server-groups",
}


def test_extensions_that_clients_look_for_are_listed(api: Api) -> None:
    listed = api.get("/v2.1/extensions").json()["extensions"]
    aliases = [each["alias"] for each in listed]
    assert aliases == sorted(set(aliases))
    assert set(aliases) >= OF_JCLOUDS
    assert {each["namespace"] for each in listed} == {"http://docs.openstack.org/compute/ext/fake_xml"}


def test_one_extension_is_shown_by_its_alias(api: Api) -> None:
    shown = api.get("/v2.1/extensions/os-keypairs").json()["extension"]
    assert (shown["alias"], shown["name"], shown["links"]) == ("os-keypairs", "Keypairs", [])
    assert shown in api.get("/v2.1/extensions").json()["extensions"]


def test_unknown_extension_is_not_found(api: Api) -> None:
    assert api.get("/v2.1/extensions/os-nothing").status_code == 404
