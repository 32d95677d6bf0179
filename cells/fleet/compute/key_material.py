"""Reads, fingerprints and generates keys as text."""

import binascii
import hashlib
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleetlight.cells.errors import InvalidKeyError
from fleetlight.cells.fleet.compute.keypairs import SSH, X509, PublicKey

_RSA_BITS = 2048
_VALID_FOR = timedelta(days=3650)


def read_key(key_type: str, text: str) -> PublicKey:
    """Read a public key, with its fingerprint. Raises InvalidKeyError if `text` is not a key of that type."""
    try:
        if key_type == X509:
            certificate = x509.load_pem_x509_certificate(text.encode())
            # Nova shows this fingerprint of a certificate; it protects nothing.
            return PublicKey(X509, text, _in_pairs(certificate.fingerprint(hashes.SHA1())))  # noqa: S303
        serialization.load_ssh_public_key(text.encode())
        blob = text.split()[1]
    except (ValueError, UnsupportedAlgorithm, IndexError) as error:
        raise InvalidKeyError(f"it is not a {key_type} key") from error
    return PublicKey(SSH, text, _ssh_fingerprint(blob))


def generate_key(key_type: str, name: str) -> tuple[PublicKey, str]:
    """Generate a key; returns its public half, and the private half in PEM. Takes about a tenth of a second.

    name: of its owner, for a certificate.
    """
    private = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
    if key_type == X509:
        certificate = _certificate(private, name)
        return read_key(X509, certificate.public_bytes(serialization.Encoding.PEM).decode()), pem
    line = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return read_key(SSH, f"{line.decode()} Generated-by-Fleetlight"), pem


def _certificate(private: rsa.RSAPrivateKey, name: str) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )


def _ssh_fingerprint(blob: str) -> str:
    """MD5 in pairs, as Nova shows it; it protects nothing."""
    return _in_pairs(hashlib.md5(binascii.a2b_base64(blob), usedforsecurity=False).digest())


def _in_pairs(digest: bytes) -> str:
    return digest.hex(":")
