"""The development certificate: one for as long as it is good."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from weir.edge.certificates import LIFETIME, MARGIN, ensure_dev_certificate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_is_made_once_and_again_when_its_end_is_near(tmp_path: Path) -> None:
    path = ensure_dev_certificate(tmp_path, NOW)
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_dev_certificate(tmp_path, NOW + LIFETIME - 2 * MARGIN).read_bytes() == first
    assert ensure_dev_certificate(tmp_path, NOW + LIFETIME).read_bytes() != first
    assert [file.name for file in tmp_path.iterdir()] == ["dev-tls.pem"]


def test_it_names_this_machine_and_no_other(tmp_path: Path) -> None:
    path = ensure_dev_certificate(tmp_path, NOW)
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert certificate.not_valid_after_utc - NOW <= timedelta(days=397)  # as browsers have it


def test_a_server_can_use_the_file_as_it_is(tmp_path: Path) -> None:
    path = ensure_dev_certificate(tmp_path, NOW)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
