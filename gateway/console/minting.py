"""Development tokens, signed only for a browser on this machine.

Only `weir up` gives a gateway its development key; no setting can. A client must know the secret in
the address that `weir up` printed, because transparent proxies and other users of this machine
look local too. The request must also come from a page of this gateway, under a local name and from
this machine: a foreign page cannot send our Origin, and a name rebound to this machine shows in
the Host.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.config import AuthConfig
from gateway.devkeys import sign_token, token_command
from protocol.errors import ProtocolError
from protocol.media import media_type
from protocol.names import JSON_TYPE
from protocol.replies import Reply, json_reply
from wire.addresses import LOCAL_NAMES, host_name, is_loopback
from wire.secret import is_secret
from wire.settings import SettingsError

MAX_BODY_BYTES = 16 * 1024
MAX_TOKEN_SECS = 12 * 3600.0
SECRET_HEADER = "weir-mint"
# Added by proxies: a client behind one may be anywhere.
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class MintKey:
    """The signing key file, and the secret of this run that requests must carry."""

    path: Path
    secret: str


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The requested token."""

    scope: str
    sub: str = "dev"
    ttl_secs: float = 3600.0


class Mint:
    def __init__(self, key: MintKey, auth: AuthConfig) -> None:
        self._key = key
        self._auth = auth
        self.max_secs = min(MAX_TOKEN_SECS, auth.max_lifetime_secs)
        self.command = token_command(key.path, auth.audience, auth.issuer, auth.scope_claim)

    def knows_secret(self, headers: Mapping[str, str]) -> bool:
        return is_secret(headers.get(SECRET_HEADER, ""), self._key.secret)

    async def make(self, body: bytes, now: float) -> Reply:
        """Raises ProtocolError."""
        wish = _read_wish(body)
        if not 1 <= wish.ttl_secs <= self.max_secs:
            raise _bad(f"`ttl_secs` must be a number from 1 to {self.max_secs:.0f}.")
        auth = self._auth
        try:
            token = await asyncio.to_thread(  # it reads the key's file
                sign_token,
                self._key.path,
                *(wish.sub, wish.scope, wish.ttl_secs, auth.audience, auth.issuer, now),
                auth.scope_claim,
            )
        except SettingsError as error:
            raise _bad(str(error)) from None
        return json_reply(200, {"token": token})


def is_local(headers: Mapping[str, str], peer: str) -> bool:
    """Whether the request comes from this machine, under a local name."""
    name = host_name(headers.get("host", ""))
    return name in LOCAL_NAMES and is_loopback(peer) and not any(h in headers for h in FORWARDED)


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a page of this gateway sent it. Pages cannot set these headers themselves."""
    host = headers.get("host", "").lower()
    ours = headers.get("origin") in (f"http://{host}", f"https://{host}")
    return (
        ours
        and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        and media_type(headers.get("content-type", "")) == JSON_TYPE
    )


def _read_wish(body: bytes) -> Wish:
    if len(body) > MAX_BODY_BYTES:
        raise _bad("The request is too long.")
    try:
        return msgspec.json.decode(body, type=Wish)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _bad("Send {scope, sub, ttl_secs} as JSON.") from None


def _bad(detail: str) -> ProtocolError:
    return ProtocolError(400, "invalid-wish", detail)
