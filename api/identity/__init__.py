"""Who is calling. A strategy turns the headers of a request into a `Caller`, or refuses."""

from api.identity.caller import Caller, Identity
from api.identity.none import NoIdentity, refuse_open_listening

__all__ = ["IDENTITIES", "Caller", "Identity", "NoIdentity", "refuse_open_listening"]

# Strategies by the value of `api.auth`.
IDENTITIES: dict[str, type[Identity]] = {"none": NoIdentity}
