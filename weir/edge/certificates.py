"""A development certificate: self-signed, for this machine only, key and certificate in one file.
Clients must be told to trust it."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.devkeys import replace_file

CERTIFICATE_FILE = "dev-tls.pem"
LIFETIME = timedelta(days=365)
MARGIN = timedelta(days=7)  # a new one is made this long before the end

_NAMES = [x509.DNSName("localhost")]
_ADDRESSES = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]


def ensure_dev_certificate(folder: Path, now: datetime) -> Path:
    """The file in the folder; created if it is missing or about to expire."""
    path = folder / CERTIFICATE_FILE
    if not path.exists() or _end_of(path) - MARGIN < now:
        replace_file(path, _make(now), mode=0o600)
    return path


def _end_of(path: Path) -> datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def _make(now: datetime) -> bytes:
    key = generate_private_key(SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + _sign(key, now.astimezone(UTC)).public_bytes(Encoding.PEM)


def _sign(key: EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Weir development")])
    public = key.public_key()
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName([*_NAMES, *_ADDRESSES]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + LIFETIME)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, SHA256())
