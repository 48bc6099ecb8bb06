"""The TLS of a server."""

import ssl

from wire.settings import SettingsError


def server_context(key: str, cert_path: str, key_path: str) -> ssl.SSLContext | None:
    """None without a certificate; `key` is the setting that a mistake is blamed on."""
    if not cert_path:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_path, key_path)
    except OSError as error:  # of which SSLError is one; neither names a file
        raise SettingsError(key, f"cannot use {cert_path} with {key_path}: {error}") from error
    return context
