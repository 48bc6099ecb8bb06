"""Which requests the origin accepts at all. It checks no tokens, so it must not serve everyone who
can connect, least of all any web page in a browser on this machine.

  key     gateways send the secret `server.access_key`; empty = not required
  host    on loopback only loopback names: an attacker may point another name here
  origin  pages must be in `http.cors_origins`, by default none: pages use the gateway. Requests for
          scripts or images have no Origin, but are marked as no-cors

Health and metrics need no key: they reveal nothing about streams.
"""

from collections.abc import Mapping

from origin.config import ServerConfig
from protocol.errors import ProtocolError
from protocol.names import ACCESS_KEY
from wire.addresses import LOCAL_NAMES, host_name, is_loopback
from wire.secret import is_secret

ANY = "*"


class Admission:
    def __init__(self, server: ServerConfig, origins: tuple[str, ...]) -> None:
        self._key = server.access_key
        self._origins = None if ANY in origins else origins
        self._hosts = _hosts(server)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether `check` would pass, and the response is the same for any page."""
        if self._origins is not None and ("origin" in headers or _is_embedded(headers)):
            return False
        return self._has_key(headers) and self._knows_host(headers)

    def check(self, method: str, headers: Mapping[str, str], *, needs_key: bool) -> None:
        """Raises ProtocolError; header names are in lower case, or case-insensitive.

        A preflight changes nothing: a response without an allowed origin refuses it."""
        if not self._knows_host(headers):
            raise _foreign_host()
        if method != "OPTIONS" and not self._knows_page(headers):
            raise _foreign_origin()
        if needs_key and not self._has_key(headers):
            raise _no_key()

    def _knows_page(self, headers: Mapping[str, str]) -> bool:
        if self._origins is None:
            return True
        origin = headers.get("origin")
        return not _is_embedded(headers) if origin is None else origin in self._origins

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        return not self._key or is_secret(headers.get("weir-access-key", ""), self._key)

    def _knows_host(self, headers: Mapping[str, str]) -> bool:
        """Browsers always send Host; simple HTTP/1.0 tools may not."""
        if self._hosts is None:
            return True
        host = headers.get("host")
        return host is None or host_name(host) in self._hosts


def _is_embedded(headers: Mapping[str, str]) -> bool:
    """Whether a page embeds it, in which case browsers send no Origin."""
    return headers.get("sec-fetch-mode") == "no-cors"


def _hosts(server: ServerConfig) -> frozenset[str] | None:
    """The accepted host names; None if all are accepted."""
    listed = frozenset(name.lower() for name in server.allowed_hosts)
    if ANY in listed or (not listed and not is_loopback(server.host)):
        return None
    bound = f"[{server.host}]" if ":" in server.host else server.host
    advertised = host_name(server.advertise.partition("://")[2])
    return listed | {*LOCAL_NAMES, bound.lower(), advertised} - {""}


def _foreign_host() -> ProtocolError:
    text = "The Host is not allowed; see `server.allowed_hosts`."
    return ProtocolError(421, "foreign-host", text)


def _foreign_origin() -> ProtocolError:
    text = "Pages from this origin are not allowed; see `http.cors_origins`."
    return ProtocolError(403, "foreign-origin", text)


def _no_key() -> ProtocolError:
    text = "This server accepts only gateways, which send Weir-Access-Key."
    return ProtocolError(401, "access-key-required", text, (("WWW-Authenticate", ACCESS_KEY),))
