"""Checks of a token, before and after its signature is verified.

Stricter than the libraries where they accept too much: duplicate names in a JSON object, an `exp`
that is missing, a string or centuries away, subjects that do not fit into a header. `docs/auth.md`
describes the rules for issuers.
"""

import base64
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gateway.rules.access import EVERYTHING, NOTHING, Principal, Scopes
from gateway.rules.challenges import Reason, invalid_token
from protocol.names import MAX_SAFE_INTEGER

if TYPE_CHECKING:  # only a value here; nothing is read from files
    from gateway.config import AuthConfig

Json = dict[str, Any]

_KEY_ID = re.compile(r"[!-~]{1,256}")
# Subjects and token ids go into headers, log lines and Redis keys unchanged.
_NAME = re.compile(r"[A-Za-z0-9._~:/@+|=#%&!*$-]{1,256}")


class Unverified(NamedTuple):
    """The parts of a token. Before its signature is verified, only the header is parsed."""

    algorithm: str
    key_id: str | None
    signed: bytes
    payload: bytes
    signature: bytes


def is_name(text: str) -> bool:
    """Whether a subject or token id is acceptable."""
    return _NAME.fullmatch(text) is not None


def is_key_id(text: str) -> bool:
    return _KEY_ID.fullmatch(text) is not None


def read_json(data: bytes) -> Json:
    """An unambiguous JSON object: no duplicate names, no NaN; raises ValueError otherwise."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique_names, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def take_apart(token: str, auth: "AuthConfig") -> Unverified:
    """Split a token and parse its header; raises AuthError."""
    head, _, rest = token.partition(".")
    body, _, tail = rest.partition(".")
    try:
        header = read_json(_decode(head))
        parts = (f"{head}.{body}".encode("ascii"), _decode(body), _decode(tail))
    except ValueError:  # includes base64 and Unicode errors
        raise invalid_token("malformed") from None
    algorithm = _read_algorithm(header, auth)
    return Unverified(algorithm, _read_key_id(header), *parts)


def read_claims(payload: bytes, key: bytes, auth: "AuthConfig", now: float) -> Principal:
    """The principal of a token with a valid signature; raises AuthError."""
    try:
        claims = read_json(payload)
    except ValueError:
        raise invalid_token("malformed") from None
    expires_at = _check_times(claims, auth, now)
    _check(not auth.issuer or claims.get("iss") == auth.issuer, "wrong-issuer")
    _check(not auth.audience or _is_for(claims.get("aud"), auth.audience), "wrong-audience")
    return Principal(
        subject=_read_name(claims.get("sub")),
        scopes=_read_scopes(claims, auth),
        expires_at=expires_at,
        key=key,
        token_id=_read_name(claims["jti"]) if "jti" in claims else "",
    )


def _decode(segment: str) -> bytes:
    """Unpadded base64url in its canonical form only; Python's decoder is more lenient."""
    data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    if not data or base64.urlsafe_b64encode(data).rstrip(b"=") != segment.encode("ascii"):
        raise ValueError("not canonical base64url")
    return data


def _read_algorithm(header: Json, auth: "AuthConfig") -> str:
    """Critical extensions are refused; keys in a header are ignored."""
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in auth.algorithms:
        raise invalid_token("algorithm")
    _check("crit" not in header, "malformed")
    wanted = auth.token_type
    _check(not wanted or _media_type(header.get("typ")) == _media_type(wanted), "wrong-type")
    return algorithm


def _media_type(value: object) -> str | None:
    """`typ` without case, with or without `application/` (RFC 7515 4.1.9)."""
    return value.lower().removeprefix("application/") if isinstance(value, str) else None


def _read_key_id(header: Json) -> str | None:
    key_id = header.get("kid")
    if key_id is None and "kid" not in header:
        return None
    if not isinstance(key_id, str) or not is_key_id(key_id):
        raise invalid_token("malformed")
    return key_id


def _check_times(claims: Json, auth: "AuthConfig", now: float) -> float:
    """The token's expiry, with leeway."""
    expires_at = _read_time(claims.get("exp")) + auth.leeway_secs
    _check(expires_at > now, "expired")
    _check(expires_at <= now + auth.max_lifetime_secs + 2 * auth.leeway_secs, "claims")
    for name in ("nbf", "iat"):
        if name in claims:
            _check(_read_time(claims[name]) <= now + auth.leeway_secs, "not-yet-valid")
    return expires_at


def _read_time(value: object) -> float:
    """A number of seconds; in Python a bool is an int, and an int may have 400 digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_token("claims")
    _check(0 <= value <= MAX_SAFE_INTEGER, "claims")  # also excludes NaN
    return float(value)


def _is_for(audience: object, wanted: str) -> bool:
    if isinstance(audience, list):
        return wanted in audience and all(isinstance(one, str) for one in audience)
    return audience == wanted


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise invalid_token("claims")
    return value


def _read_scopes(claims: Json, auth: "AuthConfig") -> Scopes:
    if auth.scope_claim not in claims:
        return EVERYTHING if auth.allow_no_scope else NOTHING
    scope = claims[auth.scope_claim]
    entries = scope if isinstance(scope, list) else [scope]
    _check(all(isinstance(entry, str) for entry in entries), "claims")
    try:
        return Scopes.parse(" ".join(entries), write_may_snapshot=auth.write_may_snapshot)
    except ValueError:
        raise invalid_token("claims") from None


def _check(ok: bool, reason: Reason) -> None:
    if not ok:
        raise invalid_token(reason)


def _unique_names(pairs: list[tuple[str, Any]]) -> Json:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("duplicate name")
    return names


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
