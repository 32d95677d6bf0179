"""Names of secret values, which no log and no answer about a wrong body may show."""

import re

_NAMES = "pass(?:word|wd)|admin_?pass|secret|token|api_?key|private_?key|authorization|cookie|user_?data"
_SECRET = re.compile(f"{_NAMES}|^contents$", re.IGNORECASE)
# In the query of an address, which may also name the file of a secret. The length of names is limited, so that the time
# is linear in the length of a text.
_IN_QUERY = re.compile(rf"(?<=[?&])([\w.\-]{{0,40}}(?:{_NAMES})[\w.\-]{{0,40}}(?<!_file)=)[^&#\s\"'<>]+", re.IGNORECASE)

HIDDEN = "***"


def is_secret_name(name: str) -> bool:
    """Whether a value of this name must not be shown."""
    return _SECRET.search(name) is not None


def mask_secret_parameters(text: str) -> str:
    """`text` with the secrets in the queries of its addresses replaced by stars."""
    return _IN_QUERY.sub(rf"\1{HIDDEN}", text)
