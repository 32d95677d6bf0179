"""The exceptions of msgspec for bytes that are no JSON."""

import msgspec

MALFORMED_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Also for texts that are no UTF-8, and for lists in lists without an end."""
