"""Whom the origin listens to at all. It asks for no token, so it must not hear everybody who can
open a connection, least of all every web page in a browser of this machine.

  key     whoever sends the secret `server.access_key` is a gateway of ours; empty = nobody is asked
  host    on loopback only by names of loopback: a name that an attacker pointed here is another
  origin  a page must be of `http.cors_origins`; by default none is: pages talk to the gateway. What
          it takes for a script or a picture names no origin, but says that it is no-cors

The pages for health and metrics need no key: they tell nothing of streams.
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
        """Whether `check` has nothing against them, and any page would get the same answer."""
        if self._origins is not None and ("origin" in headers or _is_embedded(headers)):
            return False
        return self._has_key(headers) and self._knows_host(headers)

    def check(self, method: str, headers: Mapping[str, str], *, needs_key: bool) -> None:
        """Raises ProtocolError; names of headers are in small letters, or of any case.

        A preflight changes nothing. The answer to it that names no origin is a refusal."""
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
        """No browser leaves it out; plain tools of HTTP/1.0 do."""
        if self._hosts is None:
            return True
        host = headers.get("host")
        return host is None or host_name(host) in self._hosts


def _is_embedded(headers: Mapping[str, str]) -> bool:
    """By a page, which a browser does not name then."""
    return headers.get("sec-fetch-mode") == "no-cors"


def _hosts(server: ServerConfig) -> frozenset[str] | None:
    """The names to be called by; None where every one will do."""
    listed = frozenset(name.lower() for name in server.allowed_hosts)
    if ANY in listed or (not listed and not is_loopback(server.host)):
        return None
    bound = f"[{server.host}]" if ":" in server.host else server.host
    return listed | {*LOCAL_NAMES, bound.lower()}


def _foreign_host() -> ProtocolError:
    text = "This server is not called so; `server.allowed_hosts` lists its names."
    return ProtocolError(421, "foreign-host", text)


def _foreign_origin() -> ProtocolError:
    text = "Pages of this origin may not talk to this server; `http.cors_origins` lists who may."
    return ProtocolError(403, "foreign-origin", text)


def _no_key() -> ProtocolError:
    text = "This server listens to its gateways, which send it Weir-Access-Key."
    return ProtocolError(401, "access-key-required", text, (("WWW-Authenticate", ACCESS_KEY),))
