"""Tokens for development, signed for a browser on this very machine.

Only `weir up` hands a gateway its development key; no setting can. A token is for whoever knows the
secret in the address that `weir up` printed: a proxy that says nothing of itself, and any user of
this machine, look as if they were here. It is also only for a page that this gateway served, at a
name of this machine, to somebody at this machine: a foreign page cannot name our origin, one that
had its own name pointed at us cannot hide that name.
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
# What a proxy adds: who is behind one may be anywhere.
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class MintKey:
    """The file to sign with, and the secret of this run that whoever asks must know."""

    path: Path
    secret: str


class Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The token that is asked for."""

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
            raise _bad(f"`ttl_secs` is a number from 1 to {self.max_secs:.0f}.")
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
    """Whether someone at this machine asks, by a name that only this machine has."""
    name = host_name(headers.get("host", ""))
    return name in LOCAL_NAMES and is_loopback(peer) and not any(h in headers for h in FORWARDED)


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a page from this gateway asks. Browsers let no page choose these headers."""
    host = headers.get("host", "").lower()
    ours = headers.get("origin") in (f"http://{host}", f"https://{host}")
    return (
        ours
        and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        and media_type(headers.get("content-type", "")) == JSON_TYPE
    )


def _read_wish(body: bytes) -> Wish:
    if len(body) > MAX_BODY_BYTES:
        raise _bad("The wish is too long.")
    try:
        return msgspec.json.decode(body, type=Wish)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _bad("Send {scope, sub, ttl_secs} as JSON.") from None


def _bad(detail: str) -> ProtocolError:
    return ProtocolError(400, "invalid-wish", detail)
