"""Accounts on Elasticsearch: a key for each process, with rights for what the process does and nothing else."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import open_client, send
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexForbiddenError, IndexLoginError, IndexRequestError

ACCOUNTS = ("api", "indexer")

_KEYS = "/_security/api_key"
_WHO = "/_security/_authenticate"
# The server's own words.
_WITHOUT_SECURITY = f"no handler found for uri [{_KEYS}]"


class _NewKey(msgspec.Struct):
    encoded: str


_decode = msgspec.json.Decoder(_NewKey).decode


def create_key(settings: IndexSettings, account: str) -> str:
    """Create an API key for one of ACCOUNTS, in the form of `index.api_key`; older keys stay valid.

    settings: the cluster, and an account there that may manage keys.
    Raises IndexUnavailableError and IndexRequestError.
    """
    body = {"name": f"{settings.prefix}-{account}", "role_descriptors": {account: _role(settings.prefix, account)}}
    with closing(open_client(settings, timeout_s=settings.write_timeout_s)) as client:
        try:
            answer = send(client, "POST", _KEYS, body)
        except (IndexForbiddenError, IndexLoginError) as error:
            raise IndexRequestError(f"no key can be made by {settings.username}: {error.reason}") from error
        except IndexRequestError as error:
            if _WITHOUT_SECURITY in str(error):
                raise IndexRequestError(
                    "this Elasticsearch knows no accounts: its security is off (xpack.security.enabled)"
                ) from error
            raise
    try:
        return _decode(answer).encoded
    except msgspec.MsgspecError as error:
        raise IndexRequestError("the server made a key and gives it in a form that is not understood") from error


def is_valid_key(settings: IndexSettings, key: str) -> bool:
    """Whether the cluster knows the key and has not invalidated it. Raises IndexUnavailableError, IndexRequestError.

    settings: the cluster.
    """
    as_bearer = IndexSettings.model_validate(settings.model_dump(exclude={"username", "password"}) | {"api_key": key})
    with closing(open_client(as_bearer, timeout_s=settings.write_timeout_s)) as client:
        try:
            send(client, "GET", _WHO)
        except IndexLoginError:
            return False
    return True


def _role(prefix: str, account: str) -> Mapping[str, Any]:
    """The role of an account: rights on our indexes only, and on the cluster only for what the seal reads."""
    if account == "api":
        # The alias, not the index behind it: a list must never see an index that is still being filled.
        readable = [f"{prefix}-{name}" for name in ("instances", "items", "progress", "state")]
        return {"cluster": [], "indices": [{"names": readable, "privileges": ["read"]}]}
    # `manage`: the indexer creates indexes, extends mappings, refreshes, and moves aliases.
    privileges = ["read", "write", "manage"]
    # Only the cluster state has the versions of settings and mappings, and the terms of shards
    # (fleetlight.indexer.backends.elasticsearch.numbering).
    cluster = ["cluster:monitor/state"]
    return {"cluster": cluster, "indices": [{"names": [f"{prefix}-*"], "privileges": privileges}]}
