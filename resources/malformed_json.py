"""The exceptions of msgspec for malformed JSON."""

import msgspec

MALFORMED_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Also for texts that are not UTF-8, and for lists that are nested too deeply."""
