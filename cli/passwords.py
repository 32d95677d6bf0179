"""Passwords that people type or pipe in, and passwords that are made up: never an argument, which others could see."""

import secrets
import string
import sys

import typer

from fleetlight.cli.errors import ConfigurationError

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 20


def asked_password() -> str:
    """Typed twice on a terminal, else the first line of the standard input. Empty: raises ConfigurationError."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigurationError("a password is needed: type it, or give it on the standard input")
    return password


def new_password() -> str:
    """Made up: letters and digits, which need quoting nowhere."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
