"""Files with one secret each, which only their owner can read."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from fleetlight.cli.errors import CommandError

_BYTES = 32


def new_password() -> str:
    return secrets.token_urlsafe(_BYTES)


def kept_or_new(path: Path, make: Callable[[], str]) -> tuple[str, bool]:
    """Read the secret in the file or, if there is none, write a new one; returns it, and whether it is new.

    Raises CommandError if the file is empty or cannot be read or written, and what `make` raises.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            kept = path.read_text(encoding="utf-8").rstrip("\n")
            if not kept:
                raise CommandError(f"the file of a secret, {path}, is empty; remove it to get a new one")
            return kept, False
        secret = make()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise CommandError(f"the file of a secret, {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"the file of a secret, {path}, is not text; remove it to get a new one") from error
    return secret, True
