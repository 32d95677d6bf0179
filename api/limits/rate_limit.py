"""What an answer says of a limit on its caller, in the fields of draft-ietf-httpapi-ratelimit-headers-10.

All our limits are of requests at the same time (`qu="concurrent-requests"`), so there is no window, and what is left
changes whenever one ends.
"""

from dataclasses import dataclass

WATCHES = "watches"
POLICY_HEADER = "RateLimit-Policy"
HEADER = "RateLimit"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """name: of what is limited. quota: how many a caller may have at the same time. left: how many more now.

    wait_s: when to try again, in seconds.
    """

    name: str
    quota: int
    left: int
    wait_s: int | None = None

    @property
    def headers(self) -> tuple[tuple[str, str], tuple[str, str]]:
        wait = "" if self.wait_s is None else f";t={self.wait_s}"
        return (
            (POLICY_HEADER, f'"{self.name}";q={self.quota};qu="concurrent-requests"'),
            (HEADER, f'"{self.name}";r={max(0, self.left)}{wait}'),
        )
