"""The certificates by which agents and workers authenticate each other.

Each cell has one authority. An agent's certificate permits only being called (serverAuth), and names its node; a
worker's permits only calling (clientAuth). So a compromised host cannot call the agents of other hosts.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleetlight.manager.agents.errors import CertificateError

AUTHORITY_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=365)
# The share of its lifetime after which a certificate is due for renewal.
_DUE_AFTER = 2 / 3
# Allows for different clocks of hosts.
_BACKDATED = timedelta(minutes=10)
_LONGEST_COMMON_NAME = 64


class Role(Enum):
    """The purpose of a certificate."""

    AGENT = ExtendedKeyUsageOID.SERVER_AUTH
    WORKER = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM; the key is never shown."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair()"


def new_authority(cell: str, now: datetime) -> Pair:
    """Make an authority for the agents and workers of a cell."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Fleetlight node authority of {cell}")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = _key_usage(signs_certificates=True)
    builder = (
        _builder(name, name, key, now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, role: Role, name: str, now: datetime) -> Pair:
    """Issue a certificate for the node or worker `name`, which ends no later than the authority's.

    Raises CertificateError for an unusable authority.
    """
    issuer = _certificate(authority.certificate, "of the authority")
    signer = _key(authority.key, "of the authority")
    key = ec.generate_private_key(ec.SECP256R1())
    lifetime = min(LIFETIME, issuer.not_valid_after_utc - now)
    if lifetime <= timedelta():
        raise CertificateError(f"the authority has ended at {issuer.not_valid_after_utc:%Y-%m-%d}")
    try:
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
    except ValueError:
        raise CertificateError(f"'{name}' cannot be the name of a node: it is not ASCII") from None
    builder = (
        _builder(_name(name), issuer.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([role.value]), critical=False)
        .add_extension(alternative, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def is_due(pair: Pair, authority: bytes, now: datetime) -> bool:
    """Whether a pair must be renewed: its key does not match, its authority is another one, or it ends soon.

    authority: its certificate, PEM. Raises CertificateError for a malformed certificate.
    """
    found, issuer = _certificate(pair.certificate, "to renew"), _certificate(authority, "of the authority")
    try:
        found.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001  # whichever way it fails, another authority made it
        return True
    begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
    is_old = now >= begins + (ends - begins) * _DUE_AFTER and ends < issuer.not_valid_after_utc
    return is_old or not _belongs_to(found, pair.key)


def ends_at(certificate: bytes) -> datetime:
    """Return the end of a certificate, PEM. Raises CertificateError for a malformed one."""
    return _certificate(certificate, "").not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_COMMON_NAME])])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _certificate(text: bytes, whose: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text)
    except ValueError:
        raise CertificateError(
            f"the certificate {whose} cannot be read: it has to be in PEM form".replace("  ", " ")
        ) from None


def _belongs_to(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether a key matches a certificate; it does not if only one file of a new pair was written."""
    try:
        return _key(key, "to renew").public_key() == certificate.public_key()
    except CertificateError:
        return False


def _key(text: bytes, whose: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError):
        raise CertificateError(
            f"the key {whose} cannot be read: it has to be in PEM form, without a password"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"the key {whose} is not one of ours: it has to be of an elliptic curve")
    return key
