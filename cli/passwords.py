"""Passwords from a prompt or a pipe, and generated ones; never from arguments, which other users could see."""

import secrets
import string
import sys

import typer

from fleetlight.cli.errors import ConfigurationError

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 20


def asked_password() -> str:
    """Prompt twice on a terminal, else read the first line of standard input. Raises ConfigurationError if empty."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigurationError("a password is needed: type it, or give it on the standard input")
    return password


def new_password() -> str:
    """Generate a password of letters and digits, which needs no quoting."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
