"""Shapes of answers of the identity service (contracts/nova-rest, 5.1 to 5.4)."""

from fleetlight.api.http.shapes import BOOL, NOTHING, TEXT, ListOf, MapOf, Shape, optional, or_null

_SELF = Shape({"self": TEXT})
_OPTIONS = MapOf(NOTHING)
_PAGES = Shape({"self": TEXT, "previous": NOTHING, "next": NOTHING})
NAMED = Shape({"id": TEXT, "name": TEXT})
_IN_DOMAIN = NAMED.with_keys({"domain": NAMED})
PROJECT = Shape(
    {
        **dict.fromkeys(("id", "name", "domain_id", "description", "parent_id"), TEXT),
        **dict.fromkeys(("enabled", "is_domain"), BOOL),
        "tags": ListOf(TEXT),
        "options": _OPTIONS,
        "links": _SELF,
    }
)
USER = Shape(
    {
        **dict.fromkeys(("id", "name", "domain_id"), TEXT),
        "enabled": BOOL,
        "password_expires_at": or_null(TEXT),
        "options": _OPTIONS,
        "links": _SELF,
        "default_project_id": optional(TEXT),
    }
)
DOMAIN = Shape(
    {
        **dict.fromkeys(("id", "name", "description"), TEXT),
        "enabled": BOOL,
        "tags": ListOf(TEXT),
        "options": _OPTIONS,
        "links": _SELF,
    }
)
ROLE = Shape(
    {
        **dict.fromkeys(("id", "name", "description"), TEXT),
        "domain_id": or_null(TEXT),
        "options": _OPTIONS,
        "links": _SELF,
    }
)
_REFERENCE = Shape({"id": TEXT, "name": optional(TEXT), "domain": optional(NAMED)})
ASSIGNMENT = Shape(
    {
        "role": _REFERENCE,
        "user": _REFERENCE,
        "scope": Shape({"project": _REFERENCE}),
        "links": Shape({"assignment": TEXT}),
    }
)
CREDENTIAL = Shape(
    {
        **dict.fromkeys(("id", "name", "description", "user_id", "project_id"), TEXT),
        "roles": ListOf(NAMED),
        "expires_at": or_null(TEXT),
        "unrestricted": BOOL,
        "links": _SELF,
    }
)
NEW_CREDENTIAL = CREDENTIAL.with_keys({"secret": TEXT})
SERVICE = Shape({**dict.fromkeys(("id", "type", "name", "description"), TEXT), "enabled": BOOL})
ENDPOINT = Shape(
    {**dict.fromkeys(("id", "service_id", "interface", "region", "region_id", "url"), TEXT), "enabled": BOOL}
)
REGION = Shape({"id": TEXT, "description": TEXT, "parent_region_id": NOTHING})
_CATALOG = ListOf(
    Shape(
        {
            **dict.fromkeys(("id", "type", "name"), TEXT),
            "endpoints": ListOf(Shape(dict.fromkeys(("id", "interface", "region", "region_id", "url"), TEXT))),
        }
    )
)
TOKEN = Shape(
    {
        "methods": ListOf(TEXT),
        "user": _IN_DOMAIN.with_keys({"password_expires_at": or_null(TEXT)}),
        "audit_ids": ListOf(TEXT),
        "issued_at": TEXT,
        "expires_at": TEXT,
        "project": optional(_IN_DOMAIN),
        "is_domain": optional(BOOL),
        "roles": optional(ListOf(NAMED)),
        "catalog": optional(_CATALOG),
        "application_credential": optional(NAMED.with_keys({"restricted": BOOL})),
    }
)
_VERSION = Shape(
    {
        **dict.fromkeys(("id", "status", "updated"), TEXT),
        "links": ListOf(Shape({"rel": TEXT, "href": TEXT})),
        "media-types": ListOf(Shape({"base": TEXT, "type": TEXT})),
    }
)
VERSIONS = Shape({"versions": Shape({"values": ListOf(_VERSION)})})
VERSION = Shape({"version": _VERSION})
CATALOG = Shape({"catalog": _CATALOG, "links": _PAGES})


def collection(plural: str, item: Shape) -> Shape:
    return Shape({plural: ListOf(item), "links": _PAGES})
