"""Keys as text."""

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fleetlight.cells.errors import InvalidKeyError
from fleetlight.cells.fleet.compute.key_material import generate_key, read_key
from fleetlight.cells.fleet.compute.keypairs import SSH, X509

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ada@example.org"


def test_fingerprint_is_md5_in_pairs() -> None:
    key = read_key(SSH, ED25519)
    assert key.text == ED25519
    assert key.fingerprint.count(":") == 15


@pytest.mark.parametrize("key_type", [SSH, X509])
def test_generated_key_can_be_read_again(key_type: str) -> None:
    public, private = generate_key(key_type, "ada")
    assert read_key(key_type, public.text) == public
    assert load_pem_private_key(private.encode(), None)


@pytest.mark.parametrize(
    "text", ["", "ssh-rsa", "ssh-rsa AAAA", "ssh-ed25519 !!!", "\x00", ED25519.replace("AAAAC", "AAAAD")]
)
@pytest.mark.parametrize("key_type", [SSH, X509])
def test_what_is_no_key_is_refused(key_type: str, text: str) -> None:
    with pytest.raises(InvalidKeyError):
        read_key(key_type, text)
