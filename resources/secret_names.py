"""Names of secret values, which no log and no answer about a wrong body may show."""

import re

_NAMES = "pass(?:word|wd)|admin_?pass|secret|token|api_?key|private_?key|authorization|cookie|user_?data"
_SECRET = re.compile(f"{_NAMES}|^contents$", re.IGNORECASE)
# In the query of an address, which may say in which file a secret is. No name is longer than these, so that a long text
# takes a time that grows with its length alone.
_IN_QUERY = re.compile(rf"(?<=[?&])([\w.\-]{{0,40}}(?:{_NAMES})[\w.\-]{{0,40}}(?<!_file)=)[^&#\s\"'<>]+", re.IGNORECASE)

HIDDEN = "***"


def is_secret_name(name: str) -> bool:
    """Whether a value of this name must not be shown."""
    return _SECRET.search(name) is not None


def mask_secret_parameters(text: str) -> str:
    """`text` with stars for the secrets in the queries of its addresses."""
    return _IN_QUERY.sub(rf"\1{HIDDEN}", text)
