"""Authentication of callers. A strategy turns the headers of a request into a `Caller`, or refuses.

`none`, `basic` and `keystone` are a module each; `tokens` is a small identity service of our own. `opening` opens the
configured strategy.
"""

from fleetlight.api.caller import Caller, Identity
from fleetlight.api.identity.none import NoIdentity, refuse_open_listening

__all__ = ["Caller", "Identity", "NoIdentity", "refuse_open_listening"]
