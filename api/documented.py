"""Operations of the faces beside the compute API, as the OpenAPI document shows them."""

from dataclasses import dataclass

from api.compute.protocol.shapes import Kind


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address. answer: what a success holds; None: nothing. success: its status.

    is_open: whether it needs no token.
    """

    method: str
    path: str
    answer: Kind | None = None
    success: int = 200
    is_open: bool = False
