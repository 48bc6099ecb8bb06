"""The client to the origin, made for a test, and requests to send with it."""

import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.asking import UpstreamError, UpstreamRequest
from gateway.config import AuthConfig, CacheConfig, GatewayConfig, ServingConfig, UpstreamConfig
from gateway.upstream import Upstream
from tests.helpers.scripted_origin import Answer, ScriptedOrigin

PATH = "/v1/stream/a"
TEXT = {"Content-Type": "text/plain"}
HELLO = Answer(200, TEXT, b"hello")
GET = UpstreamRequest("GET", PATH, {})
POST = UpstreamRequest("POST", PATH, {"content-type": "text/plain"}, b"data")
PUT = UpstreamRequest("PUT", PATH, {"content-type": "text/plain"})
DELETE = UpstreamRequest("DELETE", PATH, {})
HEAD = UpstreamRequest("HEAD", PATH, {})
PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
PRODUCER_POST = UpstreamRequest("POST", PATH, {"content-type": "text/plain"} | PRODUCER, b"data")
# For times that must not pass in a test.
LONG_S = 30.0


def make_config(
    url: str | Sequence[str], max_bytes: int = 1 << 24, auth: str = "off", **upstream: Any
) -> GatewayConfig:
    """Several URLs are the nodes of a cluster."""
    serving = {"origin_url": url} if isinstance(url, str) else {"origin_urls": tuple(url)}
    return GatewayConfig(
        gateway=ServingConfig(**serving),
        auth=AuthConfig(mode=auth, jwks="keys.json"),
        cache=CacheConfig(max_object_bytes=max_bytes),
        upstream=UpstreamConfig(**upstream),
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def connected(
    origin: ScriptedOrigin | str | Sequence[str], *, clock: Clock | None = None, **upstream: Any
) -> AsyncIterator[Upstream]:
    url = origin.url if isinstance(origin, ScriptedOrigin) else origin
    made = Upstream(make_config(url, **upstream), clock=clock or Clock())
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def refusal(upstream: Upstream, request: UpstreamRequest, **options: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as refused:
        await upstream.fetch(request, **options)
    return refused.value


def make_certificate(
    folder: Path, name: str = "127.0.0.1"
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context and that of a client who trusts it; `name` is an address or a host."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "origin.test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    is_host = name[-1].isalpha()
    valid = x509.DNSName(name) if is_host else x509.IPAddress(ipaddress.ip_address(name))
    builder = builder.add_extension(x509.SubjectAlternativeName([valid]), critical=False)
    cert = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path = folder / "origin.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form) + cert)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=cert.decode())
